# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""CUDA programs in pods: on healthy GPUs, on broken ones, and with images that do not fit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from breaks import Break, broken, of_lab

# Nothing but the proof of gpu-1, which has four GPUs.
PROOF = ("--limit=gpu-1", "-e", "verify_drift=false")
NODE = "gpu-1"
LIMITS = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "256Mi"}}
NAMESPACE = "with-a-quota-of-limits"
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "limits", "namespace": NAMESPACE},
    "spec": {"hard": {"limits.cpu": "8", "limits.memory": "8Gi"}},
}


def gpus(laboratory: Any) -> list[tuple[str, str]]:
    """Return PCI address and UUID of each GPU of the node, in the order of their indices."""
    query = "nvidia-smi --query-gpu=pci.bus_id,uuid --format=csv,noheader"
    rows = laboratory.host(NODE).check_output(query).splitlines()
    return [(address[4:].lower(), uuid) for address, uuid in (row.split(", ") for row in rows)]


@contextmanager
def fault(laboratory: Any, *words: str) -> Iterator[None]:
    with broken(laboratory, NODE, Break("", of_lab(*words), of_lab("restore"))):
        yield


def said(laboratory: Any, code: str) -> str:
    """Return the message of a finding of the last run."""
    (_command, output) = laboratory.printed[-1]
    (message,) = {*re.findall(rf"{code} {NODE}: [^\n]*", output)}
    return str(message)


def smoke(laboratory: Any) -> str:
    """Return the cell of the last run's table."""
    (_command, output) = laboratory.printed[-1]
    (row,) = re.findall(rf'^ +"({NODE} .*)"', output, re.MULTILINE)
    return str(re.findall(r"\d/\d|busy|-", row)[-1])


@pytest.mark.parametrize("level", ["list", "compute"])
def test_healthy_gpus_are_proven(ready, verdicts, level):
    assert verdicts(*PROOF, "-e", f"verify_level={level}") == {NODE: set()}
    assert smoke(ready) == "4/4"


def test_healthy_gpus_exchange_data(ready, verdicts):
    """A node with one GPU has nothing to exchange, and says so."""
    found = verdicts(
        "--limit=gpu-1,gpu-2", "-e", "verify_drift=false", "-e", "verify_level=exchange"
    )
    assert found == {"gpu-1": set(), "gpu-2": set()}
    (_command, output) = ready.printed[-1]
    assert "EXCHANGE_UNPROVEN gpu-2: " in output
    assert "EXCHANGE_UNPROVEN gpu-1: " not in output


@pytest.mark.parametrize(
    ("words", "code", "number"),
    [
        pytest.param(("cuda-broken", "2"), "COMPUTE_FAILED", "CUDA error 719", id="broken"),
        pytest.param(("cuda-broken", "2", "46"), "COMPUTE_FAILED", "CUDA error 46", id="busy"),
        pytest.param(("cuda-wrong", "2"), "COMPUTE_WRONG", "Result verification", id="wrong"),
        pytest.param(("cuda-hang", "2"), "COMPUTE_FAILED", "after 60 s", id="hanging"),
    ],
)
def test_only_the_gpu_that_does_not_compute_is_named(ready, verdicts, words, code, number):
    healthy, (address, uuid) = gpus(ready), gpus(ready).pop(2)
    with fault(ready, *words):
        found = verdicts(*PROOF)
    assert found == {NODE: {code}}
    message = said(ready, code)
    assert f"GPU 2 ({address}, {uuid})" in message
    assert number in message
    assert [other for _address, other in healthy if other in message] == [uuid]
    assert smoke(ready) == "3/4"


def test_a_fault_of_the_node_is_not_blamed_on_its_gpus(ready, verdicts):
    with fault(ready, "no-uvm"):
        found = verdicts(*PROOF)
    assert found == {NODE: {"CUDA_UNAVAILABLE"}}


def test_an_image_that_does_not_fit_is_not_blamed_on_the_gpus(ready, verdicts):
    """All GPUs say 209: the program lacks their code."""
    with fault(ready, "cuda-broken", "0", "209"):
        for number in ("1", "2", "3"):
            ready.lab("fault", NODE, "cuda-broken", number, "209")
        found = verdicts(*PROOF)
    assert found == {NODE: {"COMPUTE_IMAGE_UNFIT"}}


def test_an_image_without_the_program(ready, verdicts):
    image = "nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04"
    assert verdicts(*PROOF, "-e", f"verify_compute_image={image}") == {
        NODE: {"COMPUTE_PROGRAM_MISSING"}
    }
    assert image in said(ready, "COMPUTE_PROGRAM_MISSING")


def test_gpus_that_do_not_exchange_data(ready, verdicts):
    with fault(ready, "p2p-broken", "1"):
        assert verdicts(*PROOF) == {NODE: set()}
        assert verdicts(*PROOF, "-e", "verify_level=exchange") == {NODE: {"EXCHANGE_FAILED"}}


def test_gpus_without_access_to_each_other_have_nothing_to_prove(ready, verdicts):
    with fault(ready, "no-peer-access"):
        assert verdicts(*PROOF, "-e", "verify_level=exchange") == {NODE: set()}
    assert "no GPU of the node has access" in said(ready, "EXCHANGE_UNPROVEN")


@pytest.fixture
def quota(ready: Any) -> Iterator[str]:
    ready.kubectl("create", "namespace", NAMESPACE)
    where = f"--namespace={NAMESPACE}"
    ready.kubectl("wait", "--for=create", where, "serviceaccount/default", "--timeout=30s")
    ready.kubectl("apply", "-f", "-", stdin=json.dumps(QUOTA))
    hard = "--for=jsonpath={.status.hard}"
    ready.kubectl("wait", hard, where, "resourcequota/limits", "--timeout=30s")
    yield NAMESPACE
    ready.kubectl("delete", "namespace", NAMESPACE)


def test_a_quota_for_cpu_and_memory_can_be_satisfied(ready, verdicts, quota):
    place = ("-e", f"verify_smoke_namespace={quota}")
    assert verdicts(*PROOF, *place) == {NODE: {"POD_OVER_QUOTA"}}
    (_command, output) = ready.printed[-1]
    assert "set verify_smoke_resources" in " ".join(output.split())
    wanted = json.dumps({"verify_smoke_resources": LIMITS})
    assert verdicts(*PROOF, *place, "-e", wanted) == {NODE: set()}
