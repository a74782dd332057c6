# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The play of docs/docker-hosts.md on gpu-2 after the teardown: no engine, no kubelet.

The file name makes pytest run it after the teardown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import footprint
import leaks
import pytest

PLUGIN = "docker-compose-plugin"
RECORD = "/var/lib/metal-gpu/packages/docker_ce.json"
OPTIONS = {
    "docker_ce_users": ["admin"],
    "docker_ce_daemon_options": {"log-driver": "local"},
    "docker_ce_proxy": {"http": "http://127.0.0.1:3128"},
}
CUDA = "nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04"


@pytest.fixture
def playbook(laboratory: Any, tmp_path: Path) -> str:
    """Return the play for machines without a kubelet. This node's kubelet is removed first."""
    laboratory.host("gpu-2").check_output("dpkg --purge kubelet")
    text = (footprint.PROJECT / "docs/docker-hosts.md").read_text()
    section = text.partition("## Only the roles")[2]
    path = tmp_path / "docker.yml"
    path.write_text(section.split("```")[1].removeprefix("yaml\n"))
    return str(path)


def test_docker_run_has_gpus(laboratory, playbook):
    options = ("--limit=gpu-2", "--extra-vars", json.dumps(OPTIONS))
    run = laboratory.playbook(playbook, *options)
    assert run.returncode == 0
    host = laboratory.host("gpu-2")
    assert "docker" in host.check_output("id -nG admin").split()
    seen = host.check_output("docker run --rm --gpus all --entrypoint nvidia-smi %s -L", CUDA)
    assert len(set(re.findall(r"GPU-[0-9a-f-]{36}", seen))) == laboratory.gpu_count["gpu-2"]
    engine = json.loads(host.check_output("docker info --format '{{json .}}'"))
    assert engine["DefaultRuntime"] == "runc"
    # A new Docker starts with its options and its proxy.
    assert (engine["LoggingDriver"], engine["HttpProxy"]) == ("local", "http://127.0.0.1:3128")

    again = laboratory.playbook(playbook, *options)
    assert "gpu-2" in again.unchanged


def test_image_that_asks_for_gpus_gets_none(laboratory):
    """The default runtime is Docker's own, so only --gpus gives GPUs."""
    run, found = leaks.run(laboratory, "--limit=gpu-2")
    assert run.returncode == 0
    attempts = ("image_variable", "pod_variable", "plain", "volume_mount")
    assert found == {"gpu-2": {**dict.fromkeys(attempts, "nothing"), "privileged": "by design"}}
    engine = f"docker {laboratory.facts['versions']['docker']}"
    leaks.compare("docker without Kubernetes", found["gpu-2"], engine, kubernetes=None)


@pytest.fixture
def default_runtime(laboratory: Any, playbook: str) -> Iterator[None]:
    def run(**more: Any) -> None:
        options = ("--limit=gpu-2", "--extra-vars", json.dumps({**OPTIONS, **more}))
        assert laboratory.playbook(playbook, *options).returncode == 0

    run(nvidia_container_runtime_default=True)
    yield
    run()


def test_with_nvidia_as_the_default_runtime_images_get_gpus(laboratory, default_runtime):
    run, found = leaks.run(laboratory, "--limit=gpu-2")
    assert run.returncode != 0
    assert leaks.leaked(found["gpu-2"]) == {"image_variable", "pod_variable"}
    assert "GPU_LEAKED gpu-2: containers that request no GPU see GPUs" in run.words
    assert "nvidia_container_runtime_default: false" in run.words
    case = "docker without Kubernetes, default runtime nvidia"
    engine = f"docker {laboratory.facts['versions']['docker']}"
    leaks.compare(case, found["gpu-2"], engine, kubernetes=None)


def test_additional_packages_are_those_of_who_installed_them(laboratory, playbook):
    host = laboratory.host("gpu-2")
    more = json.dumps({**OPTIONS, "docker_ce_packages": [PLUGIN]})
    options = ("--limit=gpu-2", "--extra-vars", more)
    host.check_output("DEBIAN_FRONTEND=noninteractive apt-get install --yes %s", PLUGIN)
    assert "gpu-2" in laboratory.playbook(playbook, *options).unchanged
    assert PLUGIN not in host.file(RECORD).content_string
    assert PLUGIN not in host.check_output("apt-mark showhold").split()

    host.check_output("DEBIAN_FRONTEND=noninteractive apt-get purge --yes %s", PLUGIN)
    run = laboratory.playbook(playbook, *options)
    assert run.returncode == 0
    assert host.package(PLUGIN).is_installed
    assert PLUGIN in host.file(RECORD).content_string
    assert {PLUGIN, "docker-ce"} <= {*host.check_output("apt-mark showhold").split()}
    assert "gpu-2" in laboratory.playbook(playbook, *options).unchanged


def test_all_of_it_goes(laboratory, playbook):
    host = laboratory.host("gpu-2")
    run = laboratory.playbook(
        "metal.gpu.teardown", "--limit=gpu-2", "--extra-vars=teardown_engine=true"
    )
    assert run.returncode == 0
    assert [name for name in (PLUGIN, "docker-ce") if host.package(name).is_installed] == []
    paths = ("/etc/docker/daemon.json", "/etc/systemd/system/docker.service.d", RECORD)
    assert [path for path in paths if host.file(path).exists] == []
