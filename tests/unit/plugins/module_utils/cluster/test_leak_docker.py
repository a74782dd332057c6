# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.metal.gpu.plugins.filter.core import leaks_of_docker
from ansible_collections.metal.gpu.plugins.module_utils.cluster import leak_docker, leak_verdict

PLAIN, CUDA = "busybox:1", "cuda:13"
SEES = "variable set\ndevice /dev/nvidia0\nseen 1"
CLEAN = "variable set\nseen 0"
# What `docker` does here: it has the images, and prints what each container would see.
PROGRAM = """\
#!/bin/sh
case "$*" in
  "image inspect "*) exit {has_image} ;;
  "pull "*) echo 'pull access denied'; exit 1 ;;
  *--privileged*) printf '{sees}\\n' ;;
  *--volume*) echo 'docker: invalid mount'; exit 125 ;;
  *"{leaky}"*) printf '{sees}\\n' ;;
  *) printf '{clean}\\n' ;;
esac
"""


@pytest.fixture
def run(tmp_path: Path):
    def run(leaky: str = "nothing does", has_image: int = 0) -> str:
        program = tmp_path / "docker"
        sees, clean = (text.replace("\n", "\\n") for text in (SEES, CLEAN))
        words = {"leaky": leaky, "has_image": has_image, "sees": sees, "clean": clean}
        program.write_text(PROGRAM.format(**words))
        program.chmod(0o755)
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        script = leak_docker.script(PLAIN, CUDA)
        command = ["sh", "-c", script]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=environment
        ).stdout

    return run


def test_what_the_containers_saw(run) -> None:
    results = leak_docker.parse(run())
    assert {name: one.state for name, one in results.items()} == {
        "image_variable": "nothing",
        "pod_variable": "nothing",
        "plain": "nothing",
        "volume_mount": "refused",
        "privileged": "by_design",
    }
    assert results["volume_mount"].message == "docker: invalid mount"
    assert leak_verdict.findings("gpu-1", results, leak_verdict.NO_DEFAULT) == []


def test_default_runtime_is_named_as_the_cause(run) -> None:
    results = leak_docker.parse(run(leaky=CUDA))
    assert results["image_variable"].seen == ("/dev/nvidia0",)
    (found,) = leak_verdict.findings("gpu-1", results, leak_verdict.NO_DEFAULT)
    assert found["code"] == "GPU_LEAKED"
    assert "nvidia_container_runtime_default: false" in found["remedy"]


def test_image_that_cannot_be_pulled(run) -> None:
    results = leak_docker.parse(run(has_image=1))
    assert len(results) == 5
    (found,) = leak_verdict.findings("gpu-1", results)
    assert found["code"] == "LEAK_UNPROVEN"
    assert "pull access denied" in found["message"]


def output_of(said: str, *, plain: str = "seen 0\nexit 0") -> str:
    """Return the output of the script, in which two containers ran."""
    return f"== pod_variable\n{said}\nexit 125\n== plain\n{plain}\n"


@pytest.mark.parametrize(
    "said",
    [
        "docker: write /var/lib/docker/tmp: no space left on device",
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.",
        "failed to connect to the docker API at unix:///var/run/docker.sock",
        "nvidia-container-cli: initialization error: nvml error: driver not loaded",
        "failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu=all",
    ],
)
def test_daemon_that_cannot_start_a_container_refuses_nothing(said: str) -> None:
    found = leak_docker.parse(output_of(said))["pod_variable"]
    assert (found.state, found.message) == ("unproven", said)


def test_without_a_container_that_runs_nothing_is_refused() -> None:
    words = "docker: unknown runtime"
    results = leak_docker.parse(output_of("docker: no", plain=f"{words}\nexit 125"))
    assert {one.state for one in results.values()} == {"unproven"}
    assert results["pod_variable"].message == words


def test_script_that_ends_early_leaves_nothing_out() -> None:
    results = leak_docker.parse("== image_variable\nvariable set\nseen 0\nexit 0\n")
    states = {name: one.state for name, one in results.items()}
    names = ("pod_variable", "plain", "volume_mount", "privileged")
    assert states == {"image_variable": "nothing", **dict.fromkeys(names, "unproven")}


def test_where_a_privileged_container_sees_nothing_the_others_prove_nothing(run) -> None:
    results = leak_docker.parse(run().replace("device /dev/nvidia0\nseen 1", "seen 0"))
    assert results["plain"].state == results["image_variable"].state == "unproven"
    assert "is the driver loaded" in results["plain"].message


def test_without_the_driver_nothing_is_proven(run) -> None:
    """Device files outlive the driver, so a privileged container sees them."""
    found = leaks_of_docker(run(), "gpu-1", None)
    (unproven,) = found["findings"]
    assert unproven["code"] == "LEAK_UNPROVEN"
    assert "image_variable, pod_variable, plain: no container can get a GPU" in unproven["message"]
    assert "metal.gpu.docker_hosts" in unproven["remedy"]
    assert leaks_of_docker(run(), "gpu-1", "580.178.04")["findings"] == []


def test_image_without_the_variable_asks_for_nothing(run) -> None:
    results = leak_docker.parse(run().replace("variable set", "variable"))
    assert results["image_variable"].message == "the image does not set NVIDIA_VISIBLE_DEVICES"
    assert results["plain"].state == "nothing"
