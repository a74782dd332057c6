# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Docker in use has a bad configuration: the message says why, and nothing is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from scenes import ADMINS_SERVICE

CONFIG = "/etc/docker/daemon.json"
HOOK = "/usr/bin/nvidia-container-runtime-hook"
RELOAD = "/etc/systemd/system/docker.service.d/40-reload.conf"
ADMINS_STATE = f"docker inspect --format '{{{{.Id}}}} {{{{.State.StartedAt}}}}' {ADMINS_SERVICE}"


def state(laboratory: Any) -> list[str]:
    """Return evidence of any change or loss."""
    commands = (
        "find /etc -xdev -type f -exec sha256sum {} + | sort | sha256sum",
        r"find /usr -xdev -type f -printf '%p %s %T@\n' | sort | sha256sum",
        "dpkg-query -W | sha256sum",
        ADMINS_STATE,
        "docker info --format '{{len .Runtimes}} {{.DefaultRuntime}} {{.ContainersRunning}}'",
    )
    host = laboratory.host("gpu-1")
    return [host.check_output(command) for command in commands]


@pytest.fixture
def broken(laboratory: Any) -> Iterator[Any]:
    """Return a function that creates a file on gpu-1, or appends to one."""
    host = laboratory.host("gpu-1")
    undo = []

    def write(path: str, addition: str) -> None:
        folder = path.rpartition("/")[0]
        if host.file(path).exists:
            host.check_output("cp --preserve %s /root/good", path)
            undo.append(f"mv /root/good {path}")
        else:
            undo.append(f"rm {path}; rmdir --parents --ignore-fail-on-non-empty {folder}")
        host.check_output("mkdir -p %s; printf %s >> %s", folder, addition, path)

    yield write
    for command in undo:
        host.check_output(command)


ADMINS_UNIT = """[Service]
ExecStart=
ExecStart=/usr/bin/dockerd -H fd:// --default-runtime=quiet
"""


@pytest.mark.parametrize(
    ("additions", "reasons"),
    [
        pytest.param(
            {CONFIG: "}\\n", "/snap/bin/docker": ""},
            [
                rf"DOCKER_CONFIG_INVALID gpu-1: .*{CONFIG}, line \d+, column \d+: ",
                r"SNAP_DOCKER gpu-1: .*/snap/bin/docker",
            ],
            id="JSON, snap",
        ),
        pytest.param(
            {"/etc/systemd/system/docker.service.d/admin.conf": ADMINS_UNIT},
            [r"DOCKER_FLAG_CLASH gpu-1: the flag --default-runtime in \S+/admin.conf"],
            id="a key that is a flag",
        ),
    ],
)
def test_refused(laboratory, broken, additions, reasons):
    for path, addition in additions.items():
        broken(path, addition)
    before = state(laboratory)
    run = laboratory.playbook("metal.gpu.site", "--limit=gpu-1")
    assert run.returncode != 0
    assert "Nothing was changed" in run.output
    for words in reasons:
        assert re.search(words, run.words)
    assert state(laboratory) == before


@pytest.fixture
def refused_start(laboratory: Any) -> Iterator[str]:
    """Keep Docker on gpu-1 from starting while its default runtime is runc."""
    policy = "site policy: GPUs are the default here"
    test = f"! grep -q 'default-runtime.*runc' {CONFIG}"
    laboratory.lab("fault", "gpu-1", "refuse-start", "docker", test, policy)
    yield policy
    laboratory.lab("fault", "gpu-1", "permit-start", "docker")


def test_docker_that_does_not_come_back(laboratory, refused_start):
    """The role restarts Docker, because the container toolkit is newer than Docker's start."""
    laboratory.host("gpu-1").check_output("touch %s", HOOK)
    before = state(laboratory)
    run = laboratory.playbook(
        "metal.gpu.site",
        "--limit=gpu-1",
        "--tags=runtime",
        "--extra-vars=nvidia_container_runtime_default=false",
    )
    assert run.returncode != 0
    words = run.words
    assert "Restart Docker" in words
    assert f"ENGINE_NOT_BACK gpu-1: Docker did not accept the change in {CONFIG}" in words
    assert f"runs with its former configuration: {refused_start}" in words
    assert state(laboratory) == before


@pytest.fixture
def refused_mirror(laboratory: Any) -> Iterator[str]:
    """Docker on gpu-1 ends at a reload, and does not start with the mirror at this port."""
    host, policy = laboratory.host("gpu-1"), "site policy: one mirror is enough"
    laboratory.lab("fault", "gpu-1", "refuse-start", "docker", f"! grep -q :443 {CONFIG}", policy)
    drop_in = "[Service]\nExecReload=\nExecReload=/bin/kill -s TERM $MAINPID\n"
    host.check_output(f"printf %s > {RELOAD}; systemctl daemon-reload", drop_in)
    yield policy
    host.check_output("rm %s", RELOAD)
    laboratory.lab("fault", "gpu-1", "permit-start", "docker")


def test_mirror_with_which_docker_does_not_come_back(laboratory, refused_mirror, tmp_path):
    """Docker applies mirrors by a reload. It is the same registry, with its port."""
    host, registry = laboratory.host("gpu-1"), laboratory.facts["registry"]
    command = ("metal.gpu.site", "--limit=gpu-1", "--tags=registries", "-vvvv")

    def add(group: Any) -> None:
        items = group["hosts"]["gpu-1"]["registries_hosts"]
        (hub,) = (item for item in items if item["host"] == "docker.io")
        hub["mirrors"].append({"url": f"{registry['url']}:443", "ca": registry["ca"]})

    before = host.file(CONFIG).content_string, host.check_output(ADMINS_STATE)
    inventory = laboratory.inventory_with(tmp_path / "inventory.yml", add)
    run = laboratory.playbook(*command, inventory=inventory)
    assert run.returncode != 0
    assert f"ENGINE_NOT_BACK gpu-1: Docker did not accept the change in {CONFIG}" in run.words
    assert f"runs with its former configuration: {refused_mirror}" in run.words
    assert registry["password"] not in run.output
    assert (host.file(CONFIG).content_string, host.check_output(ADMINS_STATE)) == before
    assert host.check_output("systemctl is-active docker") == "active"
    mirrors = host.check_output("docker info --format '{{json .RegistryConfig.Mirrors}}'")
    assert mirrors == f'["https://mirror.example.org/","{registry["url"]}/"]'
    assert laboratory.playbook(*command).returncode == 0
    laboratory.kubectl("wait", "--for=condition=Ready", "node/gpu-1", "--timeout=60s")
