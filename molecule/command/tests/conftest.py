# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command metal-gpu as a user has it: the wheel in an environment of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

PROJECT = Path(__file__).resolve().parents[3]
PASSWORD = "correct horse"
# The commands that have a schema of their own. The others run a playbook.
OWN_SCHEMAS = ("cluster", "doctor", "explain", "scan", "top")


class Result(NamedTuple):
    """What the command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def hosts(self) -> dict[str, Any]:
        """The hosts of the JSON document, by name."""
        return {host["name"]: host for host in json.loads(self.out)["hosts"]}

    @property
    def states(self) -> dict[str, str]:
        """The states of the hosts in the JSON document of a playbook, by name."""
        return {host["host"]: host["state"] for host in json.loads(self.out)["hosts"]}

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
        kept = {name: os.environ[name] for name in ("LANG", "TERM") if name in os.environ}
        path = f"{_ssh_of(home)}:{os.environ['PATH']}"
        self.environment = {**kept, "HOME": str(home), "PATH": path}
        (self.schemas,) = program.parents[1].glob("lib/*/site-packages/metal_gpu/schemas")

    def __call__(
        self, *words: str | Path, stdin: str = "", folder: Path | None = None, **environment: str
    ) -> Result:
        """Run the command without a terminal. What it asks for comes from `stdin`."""
        result = subprocess.run(
            [self.program, *words],
            check=False,
            cwd=folder or self.home,
            input=stdin,
            capture_output=True,
            text=True,
            env={**self.environment, **environment},
            start_new_session=True,
            timeout=900,
        )
        assert "Traceback" not in result.stderr, result.stderr
        if "--json" in words:
            documents = result.stdout.splitlines() if words[0] == "top" else [result.stdout]
            assert documents, result.stderr
            for text in documents:
                self.parsed(str(words[0]), text)
        return Result(result.returncode, result.stdout, result.stderr)

    def parsed(self, command: str, text: str) -> Any:
        """Return what a command printed with --json. It fits the schema that the wheel has."""
        name = command if command in OWN_SCHEMAS else "playbook"
        schema = json.loads((self.schemas / f"{name}.json").read_text())
        document = json.loads(text)
        jsonschema.validate(document, schema)
        return document


def _ssh_of(home: Path) -> Path:
    """Return a folder with an ssh whose `-G` takes a home that is not that of /etc/passwd."""
    config = home / "of-ssh"
    config.write_text(
        f"Include {home}/.ssh/config\nUserKnownHostsFile {home}/.ssh/known_hosts\n"
        "Include /etc/ssh/ssh_config\n"
    )
    program = home / "programs" / "ssh"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\n[ "$1" != -G ] || {{ shift; set -- -G -F {config} "$@"; }}\n'
        f'exec {shutil.which("ssh")} "$@"\n'
    )
    program.chmod(0o755)
    return program.parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """The tests of bare nodes come before those of GPU nodes."""
    items.sort(key=lambda item: "gpu_nodes" in item.fixturenames)


@pytest.fixture(scope="session")
def wheel() -> Path:
    """Build the wheel, as `make dist` does."""
    subprocess.run(["make", "dist"], cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)
    [wheel] = (PROJECT / "dist").glob("metal_gpu-*.whl")
    return wheel


def install(folder: Path, what: str) -> Path:
    """Install into an environment of its own; return the program."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, what], check=True)
    return folder / "bin" / "metal-gpu"


@pytest.fixture(scope="session")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program as it is without the extra."""
    return install(tmp_path_factory.mktemp("metal-gpu"), str(wheel))


@pytest.fixture
def command(program: Path, laboratory: Any, tmp_path: Path) -> Command:
    """metal-gpu without the extra."""
    return Command(program, tmp_path / "home", laboratory)


@pytest.fixture(scope="session")
def metal_gpu(wheel: Path, laboratory: Any, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """metal-gpu with Ansible, and one home for all tests."""
    program = install(tmp_path_factory.mktemp("with-ansible"), f"{wheel}[ansible]")
    return Command(program, tmp_path_factory.mktemp("user") / "home", laboratory)


@pytest.fixture(scope="session")
def newcomer(laboratory: Any, metal_gpu: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a newcomer has run `metal-gpu scan`.

    Beside the inventory are the variables of the laboratory: its mirror, and where its known_hosts
    is. ssh does not look for that in HOME.
    """
    folder = tmp_path_factory.mktemp("newcomer")
    words = ("--user", laboratory.facts["ssh"]["user"], "--identity", metal_gpu.key)
    inventory = ("--write", "inventory.yml")
    found = metal_gpu("scan", *laboratory.addresses.values(), *words, *inventory, folder=folder)
    assert found.code == 0, found
    written = ("ansible_user", "ansible_ssh_private_key_file", "ansible_host", "gpu_count")
    of_groups = {"group_vars/gpu_nodes.yml": laboratory.group["vars"]}
    of_hosts = {f"host_vars/{name}.yml": one for name, one in laboratory.group["hosts"].items()}
    for place, variables in {**of_groups, **of_hosts}.items():
        path = folder / place
        path.parent.mkdir(exist_ok=True)
        own = {key: value for key, value in variables.items() if key not in written}
        path.write_text(json.dumps(own))
    return folder


@pytest.fixture(scope="session")
def gpu_nodes(metal_gpu: Command, newcomer: Path) -> Any:
    """What `metal-gpu site` says after it has made GPU nodes of the newcomer's machines."""
    done = metal_gpu("site", "--json", folder=newcomer)
    assert done.code == 0, done
    return json.loads(done.out)


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
