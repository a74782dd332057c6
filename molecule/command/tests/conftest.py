# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command metal-gpu as a user has it: the wheel in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PROJECT = Path(__file__).resolve().parents[3]
PASSWORD = "correct horse"


class Result(NamedTuple):
    """What the command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def hosts(self) -> dict[str, Any]:
        """The hosts of the JSON document, by name."""
        return {host["name"]: host for host in json.loads(self.out)["hosts"]}

    def codes(self, host: str) -> list[str]:
        return [one["code"] for one in self.hosts[host]["findings"]]


class Command:
    """metal-gpu with a home of its own, in which known_hosts has the keys of the laboratory."""

    def __init__(self, program: Path, home: Path, laboratory: Any) -> None:
        self.program = program
        self.home = home
        self.key = laboratory.facts["ssh"]["key"]
        self.known_hosts = home / ".ssh" / "known_hosts"
        self.known_hosts.parent.mkdir(parents=True, mode=0o700)
        self.known_hosts.write_text(Path(laboratory.facts["ssh"]["known_hosts"]).read_text())

    def __call__(self, *words: str, stdin: str = "", **environment: str) -> Result:
        """Run the command without a terminal. What it asks for comes from `stdin`."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TERM") if name in os.environ}
        result = subprocess.run(
            [self.program, *words],
            check=False,
            input=stdin,
            capture_output=True,
            text=True,
            env={**kept, "HOME": str(self.home), **environment},
            start_new_session=True,
            timeout=180,
        )
        assert "Traceback" not in result.stderr, result.stderr
        return Result(result.returncode, result.stdout, result.stderr)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel that `make dist` builds; return the program."""
    subprocess.run(["make", "dist"], cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)
    [wheel] = (PROJECT / "dist").glob("metal_gpu-*.whl")
    folder = tmp_path_factory.mktemp("metal-gpu")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip: list[str | Path] = [
        folder / "bin" / "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    subprocess.run([*pip, wheel], check=True)
    assert not list(folder.glob("lib/*/site-packages/ansible")), "ansible-core came with the wheel"
    return folder / "bin" / "metal-gpu"


@pytest.fixture
def command(program: Path, laboratory: Any, tmp_path: Path) -> Command:
    return Command(program, tmp_path / "home", laboratory)


@pytest.fixture(scope="session")
def accounts(laboratory: Any) -> str:
    """Users of gpu-1 besides the admin. Each can log in with the admin's key or this password."""
    host = laboratory.host("gpu-1")
    for name in ("plain", "careful"):
        host.check_output(f"id {name} || useradd --create-home --shell /bin/bash {name}")
        host.check_output(f"echo '{name}:{PASSWORD}' | chpasswd")
        host.check_output(f"cp -r ~admin/.ssh ~{name}/ && chown -R {name}: ~{name}/.ssh")
    host.check_output("echo 'careful ALL=(ALL) ALL' > /etc/sudoers.d/careful")
    host.check_output(
        "mkdir -p /etc/ssh/sshd_config.d && "
        "echo 'PasswordAuthentication yes' > /etc/ssh/sshd_config.d/00-test.conf && "
        "systemctl reload ssh"
    )
    return PASSWORD


@pytest.fixture
def agent(laboratory: Any, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Start an agent that has the admin's key; return the environment with it."""
    place = str(tmp_path / "agent")
    process = subprocess.Popen(
        ["ssh-agent", "-D", "-a", place], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout
    process.stdout.readline()  # it listens
    environment = {"SSH_AUTH_SOCK": place}
    add = ["ssh-add", "-q", laboratory.facts["ssh"]["key"]]
    subprocess.run(add, check=True, env={**os.environ, **environment})
    yield environment
    process.terminate()
    process.wait()
