# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files that name GPUs that are gone, or name one twice."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.verdict.names import judge_names
from ansible_collections.metal.gpu.tests.unit.support.healthy import containerd_node

NODE = containerd_node().observed()
GONE = "GPU-11111111-0000-0000-0000-000000000000"
RUN, ETC = "/var/run/cdi/nvidia.yaml", "/etc/cdi/nvidia.yaml"
UUIDS = [gpu["uuid"] for gpu in NODE["nvml"]["devices"]]


def judged(
    names: dict[str, list[str]], registered: Any = None, *, is_whole: bool = True, **nvml: Any
) -> list[str]:
    node: Any = copy.deepcopy(NODE)
    node["cdi"]["names"] = names
    node["nvml"] |= nvml
    if registered is not None:
        ids = {"registered": {"nvidia.com/gpu": registered}, "holdings": []}
        node["kubelet"]["devices"] = ids
    found = judge_names("n1", node, is_whole=is_whole)
    return [f"{one['code']}: {one['message'].removeprefix('n1: ')}" for one in found]


def named(*names: str) -> list[str]:
    return [f"nvidia.com/gpu={name}" for name in names]


def test_a_healthy_node_has_none() -> None:
    assert judged(NODE["cdi"]["names"], UUIDS) == []
    assert judged({RUN: named("0", "1", "all", *UUIDS)}, [f"{uuid}::3" for uuid in UUIDS]) == []
    assert judged({RUN: named("0"), ETC: named("0")}) == []  # the later directory wins
    assert judged({RUN: named("MIG-x")}, ["nvidia0", "MIG-x"]) == []


def test_a_specification_that_names_a_gpu_of_the_past() -> None:
    (text,) = judged({RUN: named(GONE, *UUIDS)})
    assert text == (
        f"CDI_GPU_GONE: the CDI specification {RUN} names GPUs that the node no longer has: {GONE}"
    )


def test_a_kubelet_that_knows_a_gpu_of_the_past() -> None:
    (text,) = judged({}, [f"{GONE}::0", f"{GONE}::1", *UUIDS])
    assert text.startswith("KUBELET_DEVICES_OUTDATED: ")
    assert text.endswith(f"kubelet_internal_checkpoint): {GONE}")


@pytest.mark.parametrize(
    "nvml",
    [
        pytest.param({"complete": False}, id="a GPU is missing"),
        pytest.param({"devices": [], "complete": False}, id="no driver"),
        pytest.param(
            {"devices": [{**NODE["nvml"]["devices"][0], "uuid": None}]}, id="a UUID is unknown"
        ),
    ],
)
def test_unknown_is_not_gone(nvml: dict[str, Any]) -> None:
    assert judged({RUN: named(GONE)}, [GONE], **nvml) == []


def test_a_gpu_that_is_missing_is_reported_once() -> None:
    assert judged({RUN: named(GONE)}, [GONE], is_whole=False) == []


def test_two_files_of_one_directory() -> None:
    other = "/var/run/cdi/copy.yaml"
    (text,) = judged({RUN: named("0", "all"), other: named("0", "1"), ETC: named("0")})
    assert text == (
        f"CDI_DEVICE_TWICE: the CDI specifications {RUN} and {other} both have nvidia.com/gpu=0, "
        "so container engines use neither of them"
    )
    others = {RUN: ["example.com/nic=0"], other: ["example.com/nic=0"]}
    assert judged(others) == []  # of another vendor
