# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every test has a home of its own: no ~/.ssh and no agent of the machine counts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import paramiko
import pytest

if TYPE_CHECKING:  # pytest loads this file before the conftest.py that makes them importable
    from ansible_collections.metal.gpu.tests.unit.support.ssh_server import Machine, Server
    from metal_gpu.ssh import Settings


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    # ssh takes the home of /etc/passwd: the real program gets the files of this one.
    of_home = tmp_path / "programs" / "of-home"
    of_home.parent.mkdir()
    of_home.write_text(
        f"Include {folder}/.ssh/config\n"
        f"UserKnownHostsFile {folder}/.ssh/known_hosts {folder}/.ssh/known_hosts2\n"
    )
    program = of_home.with_name("ssh")
    program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {of_home} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def key(home: Path) -> paramiko.PKey:
    """The key of the user, in its usual place."""
    from ansible_collections.metal.gpu.tests.unit.support.ssh_server import new_key

    return new_key(home / ".ssh" / "id_ed25519")


@pytest.fixture(scope="session")
def host_key(tmp_path_factory: pytest.TempPathFactory) -> paramiko.PKey:
    from ansible_collections.metal.gpu.tests.unit.support.ssh_server import new_key

    return new_key(tmp_path_factory.mktemp("host") / "host_key")


@pytest.fixture
def start(host_key: paramiko.PKey) -> Iterator[Callable[[Machine], Server]]:
    """Start machines that end with the test."""
    from ansible_collections.metal.gpu.tests.unit.support.ssh_server import Server

    with ExitStack() as stack:

        def run(machine: Machine) -> Server:
            machine.host_keys = machine.host_keys or (host_key,)
            return stack.enter_context(Server(machine))

        yield run


@pytest.fixture
def known(home: Path) -> Callable[..., Settings]:
    """Write known_hosts with the keys of machines; return settings that use it."""
    from metal_gpu.ssh import Settings

    def write(*servers: Server, **settings: object) -> Settings:
        lines = [
            f"{server.place} {key.get_name()} {key.get_base64()}\n"
            for server in servers
            for key in server.machine.host_keys
        ]
        (home / ".ssh" / "known_hosts").write_text("".join(lines))
        return Settings(user="admin", **settings)  # type: ignore[arg-type]

    return write
