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
    (text,) = judged({RUN: named("0", "all"), other: named("0", "1")})
    assert text == (
        f"CDI_DEVICE_TWICE: the CDI specifications {RUN} and {other} both have nvidia.com/gpu=0, "
        "so container engines use neither of them"
    )
    others = {RUN: ["example.com/nic=0"], other: ["example.com/nic=0"]}
    assert judged(others) == []  # of another vendor


OPERATOR = "/var/run/cdi/management.nvidia.com-gpu.yaml"
PLUGIN = "/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json"


@pytest.mark.parametrize(
    ("files", "kind", "surplus"),
    [
        pytest.param([RUN, "/var/run/cdi/nvidia.json"], "nvidia.com/gpu",
                     "/var/run/cdi/nvidia.json", id="the same as YAML and as JSON"),
        pytest.param([ETC, "/etc/cdi/old.yaml"], "nvidia.com/gpu",
                     "/etc/cdi/old.yaml", id="a copy"),
        pytest.param([OPERATOR, "/var/run/cdi/x.yaml"], "management.nvidia.com/gpu",
                     "/var/run/cdi/x.yaml", id="the operator's, and a copy"),
        pytest.param([PLUGIN, "/var/run/cdi/x.json"], "k8s.device-plugin.nvidia.com/gpu",
                     "/var/run/cdi/x.json", id="the device plugin's, and a copy"),
        pytest.param([PLUGIN, PLUGIN.replace("json", "yaml")], "k8s.device-plugin.nvidia.com/gpu",
                     "one of the files", id="a program wrote both"),
        pytest.param(["/etc/cdi/a.yaml", "/etc/cdi/b.yaml"], "nvidia.com/gpu", "one of the files",
                     id="both by hand"),
    ],
)  # fmt: skip
def test_which_of_two_files_is_too_much(files: list[str], kind: str, surplus: str) -> None:
    """A file that a program writes comes back."""
    node: Any = copy.deepcopy(NODE)
    node["cdi"] |= {
        "names": {path: [f"{kind}=0"] for path in files},
        "kinds": dict.fromkeys(files, kind),
    }
    (found,) = judge_names("n1", node, is_whole=True)
    assert found["code"] == "CDI_DEVICE_TWICE"
    assert found["remedy"].startswith(f"remove {surplus};")


def test_file_of_the_admin_beside_that_of_the_service() -> None:
    """It is in force at boot, until the service has written the other one."""
    (text,) = judged({ETC: named("0", "1"), RUN: named("0", "1", "all")})
    assert text == (
        f"CDI_FILE_SHADOWED: the CDI specifications {ETC} and {RUN} both have nvidia.com/gpu=0, "
        f"nvidia.com/gpu=1; container engines use {RUN}, but {ETC} at boot, until {RUN} is written"
    )
    assert judged({ETC: named("0"), RUN: named("1")}) == []
    twice = judged({ETC: named("0"), RUN: named("0"), "/var/run/cdi/x.yaml": named("0")})
    assert [one.partition(":")[0] for one in twice] == ["CDI_DEVICE_TWICE"]
