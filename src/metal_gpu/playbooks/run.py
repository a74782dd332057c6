# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a playbook by ansible-runner, and stop it cleanly.

Everything that ansible-runner writes is in a folder that is gone when the run is over.

ansible-runner changes settings of Ansible, such as the check of host keys and the cache of facts.
Here, those of the user hold.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.readable import printable
from metal_gpu import inventory
from metal_gpu.playbooks import files
from metal_gpu.playbooks.options import PROMPTS
from metal_gpu.playbooks.stopping import Stop

CALLBACK = "metal.gpu.quiet"
INSTALL = "`pip install '.[ansible]'` in a checkout of metal.gpu"  # there is no release yet
_POLL_S = 0.5  # how often ansible-runner asks whether to stop, if nothing is printed
_NOT_OF_THE_USER = (
    *("ANSIBLE_HOST_KEY_CHECKING", "ANSIBLE_RETRY_FILES_ENABLED"),
    *("ANSIBLE_CACHE_PLUGIN", "ANSIBLE_CACHE_PLUGIN_CONNECTION"),
)
_COLLECTIONS = (Path.home() / ".ansible" / "collections", Path("/usr/share/ansible/collections"))
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Event = Mapping[str, object]


class CannotRun(Exception):
    """Something that a run needs is not there; the message says what to do."""


class Ended(NamedTuple):
    """How a run ended."""

    rc: int
    signal: int  # that stopped it; 0: none


def check() -> str:
    """Return the ansible-playbook to use. Raises CannotRun."""
    try:
        import ansible_runner  # noqa: F401
    except ImportError as error:
        raise CannotRun(
            f"the Python package {error.name} is not installed for {sys.executable}; playbooks "
            f"need it. Run {INSTALL}"
        ) from error
    program = shutil.which("ansible-playbook", path=_path(os.environ))
    if program is None:
        raise CannotRun(
            f"ansible-playbook is neither beside {sys.executable} nor in PATH. Run {INSTALL}"
        )
    return program


def missing_collection(environment: Mapping[str, str]) -> str:
    """Return what to know if kubernetes.core is in no usual place; empty if it is."""
    configured = environment.get("ANSIBLE_COLLECTIONS_PATH", "").split(os.pathsep)
    for place in [*configured, *map(str, _COLLECTIONS), *sys.path]:
        if place and (Path(place) / "ansible_collections" / "kubernetes" / "core").is_dir():
            return ""
    return (
        "the collection kubernetes.core is in none of the usual places. If ansible.cfg names no "
        "other place, run `ansible-galaxy collection install 'kubernetes.core:>=6.0.0'`"
    )


def run(
    playbook: str,
    arguments: Sequence[str],
    on_event: Callable[[Event], None],
    tell: Callable[[str], None],
    passwords: Mapping[str, str],
) -> Ended:
    """Run a playbook, and hand each event on.

    `passwords` are by the option of ansible-playbook that asks for them. `tell` gets what the user
    must know meanwhile. Raises CannotRun.
    """
    check()
    from ansible_runner.interface import init_runner

    stop = Stop(tell)

    def handle(event: Event) -> bool:
        process = event.get("pid")
        if isinstance(process, int):
            stop.know(process)
        on_event(event)
        return False  # nothing needs the event afterwards

    with _handled(stop), _private_folder() as folder:
        runner = init_runner(
            private_data_dir=str(folder),
            project_dir=str(Path.cwd()),  # where ansible.cfg is
            playbook=playbook,
            cmdline=shlex.join(arguments) or None,
            envvars=_environment(os.environ),
            passwords={PROMPTS[option][1]: value for option, value in passwords.items()} or None,
            suppress_env_files=True,
            quiet=True,
            fact_cache_type="",
            event_handler=handle,
            cancel_callback=stop.is_over,
        )
        for name in _NOT_OF_THE_USER:
            runner.config.env.pop(name, None)
            if name in os.environ:
                runner.config.env[name] = os.environ[name]
        runner.config.pexpect_timeout = _POLL_S
        runner.config.suppress_output_file = True
        if not stop.signal:
            runner.run()
        stop.finish()
    if stop.signal:
        return Ended(128 + stop.signal, stop.signal)
    return Ended(1 if runner.rc is None else runner.rc, 0)


def plain(text: str) -> str:
    """Return what a terminal would show, without colours and carriage returns.

    What else controls a terminal is of a node, and becomes a question mark.
    """
    return printable(re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).replace("\r", ""))


def _path(environment: Mapping[str, str]) -> str:
    """Return PATH with the folder of this Python first, where pip puts Ansible's programs."""
    beside = str(Path(sys.executable).parent)
    return os.pathsep.join(filter(None, [beside, environment.get("PATH", "")]))


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what a run sees that the user has not set."""
    return {
        **_collections(environment),
        "PATH": _path(environment),
        inventory.STRICT: environment.get(inventory.STRICT, "true"),
        "ANSIBLE_STDOUT_CALLBACK": environment.get("ANSIBLE_STDOUT_CALLBACK", CALLBACK),
        "ANSIBLE_FORCE_COLOR": "False",  # the display colours itself
        "ANSIBLE_NOCOLOR": "True",
        "ANSIBLE_AGNOSTIC_BECOME_PROMPT": "True",  # what PROMPTS has
    }


def _collections(environment: Mapping[str, str]) -> dict[str, str]:
    """Return where an Ansible of another Python finds this collection."""
    is_own = (Path(sys.executable).parent / "ansible-playbook").is_file()
    own = files.folder()
    if is_own or own is None or "ANSIBLE_COLLECTIONS_PATH" in environment:
        return {}
    # Those of Ansible's own default come after.
    places = [own.parents[2], *_COLLECTIONS]
    return {"ANSIBLE_COLLECTIONS_PATH": os.pathsep.join(map(str, places))}


@contextmanager
def _handled(stop: Stop) -> Iterator[None]:
    """Handle signals, and restore what handled them before. With nohup, SIGHUP stays ignored."""
    heeded = [one for one in _SIGNALS if signal.getsignal(one) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop.handle) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _private_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="metal-gpu-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
