# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs playbooks as a user does, with the ansible-core of the Python that runs the tests.

Hosts are this machine, by the connection plugin `local` and without becoming root. So a test can
say nothing about what the machine has, only about what Ansible and this collection make of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[3]
LOCAL = {
    "ansible_connection": "local",
    "ansible_become": False,
    "ansible_python_interpreter": sys.executable,
}


class Run(NamedTuple):
    code: int
    output: str

    @property
    def words(self) -> str:
        """The output on one line, as Ansible breaks lines where it likes."""
        return " ".join(self.output.replace("\\n", " ").split())


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return the environment in which a playbook runs."""
    return {
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible" / "collections"),
        "ANSIBLE_PIPELINING": "true",
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "PATH": os.environ["PATH"],
        **more,
    }


def run(
    folder: Path,
    playbook: str | list[dict[str, Any]],
    inventory: Mapping[str, Any],
    *options: str,
    **variables: str,
) -> Run:
    """Run a playbook, of the collection or given as plays, and return what came of it.

    `variables` are environment variables.
    """
    if not isinstance(playbook, str):
        (folder / "plays.yml").write_text(yaml.safe_dump(playbook, sort_keys=False))
        playbook = str(folder / "plays.yml")
    return _run(folder, "ansible-playbook", playbook, inventory, options, variables)


def run_role(folder: Path, role: str, inventory: Mapping[str, Any], *options: str) -> Run:
    """Run a role on all hosts with the program `ansible`, without a playbook."""
    module = ("--module-name=include_role", f"--args=name={role}")
    return _run(folder, "ansible", "all", inventory, (*module, *options), {})


def _run(
    folder: Path,
    program: str,
    argument: str,
    inventory: Mapping[str, Any],
    options: Sequence[str],
    variables: Mapping[str, str],
) -> Run:
    (folder / "hosts.yml").write_text(yaml.safe_dump(dict(inventory)))
    command = [str(Path(sys.executable).with_name(program))]
    result = subprocess.run(
        [*command, f"--inventory={folder / 'hosts.yml'}", argument, *options],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=environment(folder, **variables),
    )
    return Run(result.returncode, result.stdout)
