# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker's default runtime is nvidia: who gets a GPU without a request, with the guard and without.

The guard is a pair of admission policies, so it has an effect only in a real API server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import leaks
import pytest

SITE = ("metal.gpu.site", "--tags=device_plugin")
# What the variable of the image gives, and what it gives where nobody asked.
BY_IMAGE = {"image_variable", "second_container", "init_container", "ephemeral_container"}


@pytest.fixture
def no_guard(laboratory: Any) -> Iterator[None]:
    run = laboratory.playbook(*SITE, "--extra-vars=device_plugin_guard=none")
    assert run.returncode == 0
    yield
    assert laboratory.playbook(*SITE).returncode == 0


def test_no_container_gets_a_gpu_that_it_did_not_request(laboratory):
    run, found = leaks.run(laboratory)
    assert run.returncode == 0
    leaks.check(laboratory, "docker, guard", "docker", found)
    for attempts in found.values():
        assert {*attempts.values()} <= {"nothing", "refused", "by design"}
        assert all(attempts[name] == "nothing" for name in BY_IMAGE)
        assert attempts["pod_variable"] == "refused"


def test_without_the_guard_they_do_and_the_finding_says_how(laboratory, no_guard):
    run, found = leaks.run(laboratory)
    assert run.returncode != 0
    leaks.check(laboratory, "docker, no guard", "docker", found)
    for attempts in found.values():
        leaked = {name for name, state in attempts.items() if state == "leaked"}
        assert BY_IMAGE | {"pod_variable"} <= leaked
        assert attempts["plain"] == "nothing"
    assert "GPU_LEAKED gpu-1: containers that request no GPU see GPUs" in run.words
    assert "an image with NVIDIA_VISIBLE_DEVICES=all (/dev/nvidia" in run.words
    assert "device_plugin_guard: enforce" in run.words


def test_guard_is_back_and_a_second_run_changes_nothing(laboratory):
    kinds = "mutatingadmissionpolicies,validatingadmissionpolicies"
    names = laboratory.kubectl("get", kinds, "-o", "name").split()
    assert sum("metal-gpu-guard" in name for name in names) == 2
    run = laboratory.playbook(*SITE)
    assert run.returncode == 0
    assert not re.search(r"changed=[1-9]", run.output)


def test_pods_that_request_gpus_still_get_them(laboratory):
    """The plugin is in an exempt namespace; the pods of the proof request their GPUs."""
    run = laboratory.playbook("metal.gpu.verify")
    assert run.returncode == 0
