# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who gets a GPU without a request, with any engine: with the guard and without.

The guard is a pair of admission policies, so it has an effect only in a real API server. It is
there where `nvidia` is the default runtime: under Docker always, elsewhere if an admin wants that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import leaks
import pytest
import yaml

RECORDED = yaml.safe_load((leaks.RECORD.parent / "isolation.yml").read_text())
WORDS = {row["what"]: row["value"] for row in RECORDED["extended_resources"]["rows"]}

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


def policies(laboratory: Any) -> list[str]:
    kinds = "mutatingadmissionpolicies,validatingadmissionpolicies"
    names = laboratory.kubectl("get", kinds, "-o", "name").split()
    return [name for name in names if "metal-gpu-guard" in name]


def test_no_container_gets_a_gpu_that_it_did_not_request(laboratory):
    leaks.nothing_leaks(laboratory, leaks.engine(laboratory).case)


@pytest.fixture(scope="module")
def default_runtime(laboratory: Any) -> Iterator[Any]:
    """`nvidia` is the default runtime. Docker has that already. Return the run."""
    engine = leaks.engine(laboratory)
    before = policies(laboratory)
    run = leaks.site(laboratory, nvidia_container_runtime_default=True)
    yield run
    # Policies that are there stay, until an admin takes them away.
    former = {} if before else {"device_plugin_guard": "none"}
    leaks.site(laboratory, nvidia_container_runtime_default=engine.has_default, **former)
    assert policies(laboratory) == before


def test_first_run_with_this_default_runtime_brings_the_guard(laboratory, default_runtime):
    assert len(policies(laboratory)) == 2
    # Docker's nodes have the guard since the scenario's first run.
    assert ("GUARD_NEW" in default_runtime.words) is not leaks.engine(laboratory).has_default
    found = leaks.nothing_leaks(laboratory, f"{leaks.engine(laboratory).by_default}, guard")
    for attempts in found.values():
        assert all(attempts[name] == "nothing" for name in leaks.BY_IMAGE)
        assert attempts["pod_variable"] == "refused"


@pytest.fixture
def no_guard(laboratory: Any, default_runtime: Any) -> Iterator[None]:
    default = {"nvidia_container_runtime_default": True}
    leaks.site(laboratory, **default, device_plugin_guard="none")
    yield
    leaks.site(laboratory, **default)


def test_without_the_guard_they_do_and_the_finding_says_how(laboratory, no_guard):
    run, found = leaks.run(laboratory)
    assert run.returncode != 0
    leaks.check(laboratory, f"{leaks.engine(laboratory).by_default}, no guard", found)
    for attempts in found.values():
        leaked = {name for name, state in attempts.items() if state == "leaked"}
        assert leaks.BY_IMAGE | {"pod_variable"} <= leaked
        assert attempts["plain"] == "nothing"
    assert "GPU_LEAKED gpu-1: containers that request no GPU see GPUs" in run.words
    assert "an image with NVIDIA_VISIBLE_DEVICES=all (/dev/nvidia" in run.words
    assert "device_plugin_guard: enforce" in run.words


def test_guard_is_back_and_a_second_run_changes_nothing(laboratory, default_runtime):
    assert len(policies(laboratory)) == 2
    run = leaks.site(laboratory, nvidia_container_runtime_default=True)
    assert not re.search(r"changed=[1-9]", run.output)


def test_pods_that_request_gpus_still_get_them(laboratory, default_runtime):
    """The plugin is in an exempt namespace; the pods of the proof request their GPUs."""
    variable = '{"nvidia_container_runtime_default": true}'
    run = laboratory.playbook("metal.gpu.verify", "--extra-vars", variable)
    assert run.returncode == 0


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
