# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What package operations run on systems with dnf 4. No function does I/O.

Source: plugins/versionlock.py of rpm-software-management/dnf-plugins-core
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import (
    EXIT_ON_LOCK,
    NO_REPOSITORY,
    NO_STREAMS,
    NO_WEAK,
    Call,
    Operation,
    Request,
    Steps,
    absent,
    bare_names,
    command,
    file,
    file_path,
    forget,
    private,
    record,
    repository_mode,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.login import of_address
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.rehearsal import (
    before_removal,
    before_removals,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import FILES, MANAGED
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import (
    METADATA,
    PACKAGES,
    REDHAT,
    SUFFIXES,
)

VERSIONLOCK = "python3-dnf-plugin-versionlock"


def _dnf(*argv: str, **more: Any) -> Call:
    # Not ansible.builtin.dnf: with ansible-core 2.19 and 2.21, its lock_timeout has no effect.
    return command("dnf", "--assumeyes", EXIT_ON_LOCK, *argv, **more)


def _installation(request: Request, packages: list[str], *options: str) -> Call:
    # If not, dnf reads the indexes that it does not have, and those that have expired.
    refresh = ["--refresh"] if request.is_fresh else []
    return _dnf(NO_WEAK, *refresh, *options, "install", *packages)


def _install(request: Request) -> Steps:
    # A versionlock names the installed version and excludes every other one.
    names = bare_names(request.names, REDHAT) if request.options["change_held"] else []
    erasing = ["--allowerasing"] if request.options["may_remove"] else []
    install = _installation(request, request.names, *erasing)
    # dnf removes packages that are obsolete, whatever the options.
    steps = _unlocked(request, names, install, record(request))
    return steps._replace(work=(before_removals(request, REDHAT), *steps.work))


def _install_file(request: Request) -> Steps:
    # The package has no signature. get_url has checked its checksum.
    path = file_path(request, SUFFIXES[REDHAT])
    return file(request, path, _installation(request, [path], "--nogpgcheck"))


def installed() -> Call:
    """List the installed packages, in the form that `versionlock add` takes."""
    form = "--queryformat=%{NAME}-%|EPOCH?{%{EPOCH}}:{0}|:%{VERSION}-%{RELEASE}\\n"
    return command("rpm", "-qa", form, explains=False, changes=False)


def alike(names: Sequence[str], patterns: Iterable[str], listed: str) -> list[str]:
    """Return the names, and those of the installed packages that match a pattern, each once.

    `versionlock add` takes patterns, but ignores one if anything that matches is locked already.
    """
    matching = [
        one for one in listed.splitlines() if any(fnmatchcase(one, pattern) for pattern in patterns)
    ]
    more = [one for one in matching if not any(one.startswith(f"{name}-") for name in names)]
    return [*names, *sorted(more)]


def _hold(request: Request) -> Steps:
    # Without its plugin, dnf has no holds.
    plugin = _installation(request, [VERSIONLOCK])
    return Steps(work=(plugin, _versionlock("add", request.names)))


def _versionlock(what: str, names: list[str]) -> Call:
    return _dnf(NO_REPOSITORY, "versionlock", what, *names)


def _unlocked(
    request: Request, names: list[str], change: Call, first: tuple[Call, ...] = ()
) -> Steps:
    """Change packages that may be held. A failure leaves them held."""
    held = [name for name in names if name in request.held]
    if not held:
        return Steps(first, (change,))
    return Steps(
        (*first, _versionlock("delete", held)), (change,), undo=(_versionlock("add", held),)
    )


def _remove(request: Request) -> Steps:
    # The libraries of a driver are dependencies. Whether dnf removes them is up to dnf.conf.
    remove = _dnf(NO_REPOSITORY, "remove", *request.names)
    # A remaining versionlock would exclude all other versions of these packages.
    steps = _unlocked(request, [*request.names, *request.options["also_release"]], remove)
    return steps._replace(work=(before_removal(request, REDHAT), *steps.work))


def _repository(request: Request) -> Steps:
    repository = request.repository
    path, key_file = FILES[REDHAT].format(repository["name"]), repository["key_file"]
    # dnf reads the pinned key from the node, so a later change at the key's URL has no effect.
    key = {"content": request.key, "dest": key_file, "mode": "0644"}
    address = of_address(repository["url"])
    options = {
        "name": repository["name"],
        "description": f"{repository['name']}{MANAGED}",
        **address,
        "gpgcheck": repository["signs"] == PACKAGES,
        "repo_gpgcheck": repository["signs"] == METADATA,
        "gpgkey": f"file://{key_file}",
        "mode": repository_mode(repository["url"]),
    }
    return Steps(
        work=(
            Call("ansible.builtin.copy", key, explains=False),
            # The module sets the mode only after it has written the file.
            *((private(path),) if "username" in address else ()),
            Call("ansible.builtin.yum_repository", options, explains=False, is_logged=False),
            # With the signature of the metadata. The installation uses what is read here.
            _dnf(f"--repo={repository['name']}", "makecache"),
        ),
        undo=_no_repository(request).work if repository["new"] else (),
    )


def _no_repository(request: Request) -> Steps:
    repository = request.repository
    options = {"name": repository["name"], "state": "absent"}
    return Steps(
        work=(
            Call("ansible.builtin.yum_repository", options, explains=False),
            absent(repository["key_file"], explains=False),
        )
    )


def _stream(request: Request) -> Steps:
    stream = request.options["stream"]
    enable = _dnf("module", "enable", stream)
    if request.repository:
        return Steps(work=(enable,))
    # The sources of the node may be copies without streams: dnf then sees all packages.
    listing = _dnf("--quiet", "module", "list", stream, changes=False, enough=NO_STREAMS)
    return Steps(work=(listing, enable))


def _release(request: Request) -> Steps:
    held = [name for name in request.names if name in request.held]
    return Steps(work=(_versionlock("delete", held),) if held else ())


OPERATIONS: dict[str, Operation] = {
    "repository": _repository,
    "stream": _stream,
    "install": _install,
    "install_file": _install_file,
    "hold": _hold,
    "release": _release,
    "remove": _remove,
    "no_repository": _no_repository,
    "forget": forget,
}
QUESTIONS = (
    ["dnf", EXIT_ON_LOCK, "makecache"],
    ["dnf", EXIT_ON_LOCK, "list", "--showduplicates"],
)
