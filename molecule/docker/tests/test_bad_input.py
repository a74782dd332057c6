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


def state(laboratory: Any) -> list[str]:
    """Return evidence of any change or loss."""
    commands = (
        "find /etc -xdev -type f -exec sha256sum {} + | sort | sha256sum",
        r"find /usr -xdev -type f -printf '%p %s %T@\n' | sort | sha256sum",
        "dpkg-query -W | sha256sum",
        f"docker inspect --format '{{{{.Id}}}} {{{{.State.StartedAt}}}}' {ADMINS_SERVICE}",
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
