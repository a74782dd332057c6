# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""containerd and CDI: nobody gets a GPU without a request, also not by the RuntimeClass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import leaks
import pytest
import yaml

RECORDED = yaml.safe_load((leaks.RECORD.parent / "isolation.yml").read_text())
WORDS = {row["what"]: row["value"] for row in RECORDED["extended_resources"]["rows"]}
SITE = ("metal.gpu.site", "--tags=runtime,device_plugin")

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: unequal, namespace: default}}
spec:
  containers:
    - name: cuda
      image: nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04
      resources: {resources}
"""


def test_no_container_gets_a_gpu_that_it_did_not_request(laboratory):
    run, found = leaks.run(laboratory)
    assert run.returncode == 0
    leaks.check(laboratory, "containerd", "containerd", found)
    for attempts in found.values():
        assert {*attempts.values()} <= {"nothing", "refused", "by design"}


def test_device_plugin_sees_its_gpus_without_its_environment(laboratory, node):
    """A restart of the plugin: it asks for all GPUs by a mount."""
    config = laboratory.host(node).file("/etc/nvidia-container-runtime/config.toml")
    assert "accept-nvidia-visible-devices-envvar-when-unprivileged = false" in config.content_string
    selector = "app.kubernetes.io/name=nvidia-device-plugin"
    delete = ("delete", "pods", "-n", "kube-system", "-l", selector)
    laboratory.kubectl(*delete, f"--field-selector=spec.nodeName={node}")
    assert laboratory.playbook("metal.gpu.verify").returncode == 0


@pytest.fixture
def accepted(laboratory: Any) -> Iterator[None]:
    run = laboratory.playbook(*SITE, "--extra-vars=nvidia_container_runtime_envvar=accept")
    assert run.returncode == 0
    yield
    assert laboratory.playbook(*SITE).returncode == 0


def test_with_the_toolkits_own_settings_the_runtime_class_is_a_way_around(laboratory, accepted):
    run, found = leaks.run(laboratory)
    assert run.returncode != 0
    leaks.check(laboratory, "containerd, toolkit's own settings", "containerd", found)
    for attempts in found.values():
        assert {name for name, state in attempts.items() if state == "leaked"} == {"runtime_class"}


@pytest.mark.parametrize(
    ("resources", "what"),
    [
        ("{requests: {nvidia.com/gpu: 1}}", "a request without a limit"),
        (
            "{requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 2}}",
            "a request of 1 with a limit of 2",
        ),
    ],
)
def test_the_api_server_refuses_what_could_be_shared(laboratory, resources, what):
    with pytest.raises(AssertionError, match=WORDS[what]):
        laboratory.kubectl("apply", "-f", "-", stdin=POD.format(resources=resources))
