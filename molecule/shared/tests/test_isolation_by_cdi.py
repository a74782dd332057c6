# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""An engine with CDI: nobody gets a GPU by the RuntimeClass without a request, either."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import leaks
import pytest


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
    leaks.site(laboratory, nvidia_container_runtime_envvar="accept")
    yield
    leaks.site(laboratory)


def test_with_the_toolkits_own_settings_the_runtime_class_is_a_way_around(laboratory, accepted):
    run, found = leaks.run(laboratory)
    assert run.returncode != 0
    leaks.check(laboratory, f"{leaks.engine(laboratory).case}, toolkit's own settings", found)
    # Only CRI-O passes the annotations of pods to NVIDIA's runtime.
    is_crio = leaks.engine(laboratory).name == "crio"
    by_annotation = {"runtime_class_annotation"} if is_crio else set()
    for attempts in found.values():
        assert leaks.leaked(attempts) == {"runtime_class"} | by_annotation
