# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""README's playbook on gpu-2 after the teardown, a machine without an engine and a kubelet.

The file name makes pytest run it after the teardown.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import footprint
import leaks
import pytest

CUDA = "nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04"


@pytest.fixture
def playbook(laboratory: Any, tmp_path: Path) -> str:
    """README's playbook for machines without a kubelet. This node's kubelet is removed first."""
    laboratory.host("gpu-2").check_output("dpkg --purge kubelet")
    section = (footprint.PROJECT / "README.md").read_text().partition("### Docker without")[2]
    path = tmp_path / "docker.yml"
    path.write_text(section.split("```")[1].removeprefix("yaml\n"))
    return str(path)


def test_docker_run_has_gpus(laboratory, playbook):
    options = ("--limit=gpu-2", "--extra-vars", json.dumps({"docker_ce_users": ["admin"]}))
    run = laboratory.playbook(playbook, *options)
    assert run.returncode == 0
    host = laboratory.host("gpu-2")
    assert "docker" in host.check_output("id -nG admin").split()
    seen = host.check_output("docker run --rm --gpus all --entrypoint nvidia-smi %s -L", CUDA)
    assert len(set(re.findall(r"GPU-[0-9a-f-]{36}", seen))) == laboratory.gpu_count["gpu-2"]
    assert (
        json.loads(host.check_output("docker info --format '{{json .DefaultRuntime}}'")) == "runc"
    )

    again = laboratory.playbook(playbook, *options)
    assert "gpu-2" in again.unchanged


def test_image_that_asks_for_gpus_gets_none(laboratory):
    """The default runtime is Docker's own, so only --gpus gives GPUs."""
    run, found = leaks.run(laboratory, "--limit=gpu-2")
    assert run.returncode == 0
    attempts = ("image_variable", "pod_variable", "plain", "volume_mount")
    assert found == {"gpu-2": {**dict.fromkeys(attempts, "nothing"), "privileged": "by design"}}
