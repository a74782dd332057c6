# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node with NVSwitches: what is wrong with its fabric. The words are those of public reports."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import fabric
from ansible_collections.metal.gpu.plugins.module_utils.verdict.fabric import (
    judge_fabric,
    judge_unknown,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.reconcile import reconcile
from ansible_collections.metal.gpu.tests.unit.support import done
from ansible_collections.metal.gpu.tests.unit.support.healthy import docker_node

ADDRESSES = ["0000:53:00.0", "0000:64:00.0"]
RUNNING = {"installed": True, "enabled": True, "active": True, "state": "active, running, success"}
FAILED = {**RUNNING, "active": False, "state": "failed, exit-code"}
NO_UNIT = {"installed": False, "enabled": False, "active": False, "state": "inactive, dead"}
OTHER_VERSION = (
    "fabric manager NVIDIA GPU driver interface version 590.48.01 don't match with driver version "
    "580.178.04. Please update with matching NVIDIA driver package."
)


def states(*words: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "pci_address": address,
            "state": state,
            "status": status,
            "good": (state, status) in (("Completed", "Success"), ("N/A", "N/A")),
            "health": None,
            "misconfigured": None,
            "degraded": [],
            "healthy": True,
        }
        for address, (state, status) in zip(ADDRESSES, words, strict=False)
    ]


GOOD = states(("Completed", "Success"), ("Completed", "Success"))
PENDING = states(("Completed", "Success"), ("In Progress", "N/A"))


def node(device: str = "2330", **found: Any) -> dict[str, Any]:
    return {
        "pci": done.bus(ADDRESSES, device),
        "nvml": {
            "driver_version": "580.178.04",
            "complete": True,
            "devices": [{"pci_address": address, "error": None} for address in ADDRESSES],
        },
        "health": {"cuda_version": "13.0", "gpus": [], "error": None},
        "fabric": {
            "switches": [{"address": "0000:05:00.0"}, {"address": "0000:06:00.0"}],
            "ports": [],
            "packages": {"nvidia-fabricmanager": "580.178.04-1", "nvidia-imex": "580.126.20-1"},
            "manager": RUNNING,
            "process": True,
            "subnet_manager": True,
            "modules": ["mlx5_ib", "ib_umad"],
            "mode": 0,
            "states": GOOD,
            "log": [],
            **found,
        },
    }


NOBODY = {"packages": {}, "manager": NO_UNIT, "process": False}
PORTS = {"switches": [], "ports": ["0000:41:00.0"]}


@pytest.mark.parametrize(
    ("seen", "code", "words"),
    [
        pytest.param(node(), None, "", id="healthy"),
        pytest.param(
            node("20b2", states=states(("N/A", "N/A"), ("N/A", "N/A"))), None, "", id="A100"
        ),
        pytest.param(node(states=[]), None, "", id="a driver without these fields"),
        pytest.param(
            node(switches=[], states=states(("N/A", "N/A"), ("N/A", "N/A")), **NOBODY),
            None,
            "",
            id="PCIe cards",
        ),
        pytest.param(node(switches=[], **NOBODY), None, "", id="a virtual machine"),
        pytest.param(
            node(**{**NOBODY, "process": True}), None, "", id="in a container, on the host none"
        ),
        pytest.param(
            node(manager=NO_UNIT, packages={"nvidia-fabricmanager": "590.48.01-1"}),
            None,
            "",
            id="in a container, beside another package",
        ),
        *(
            pytest.param(
                node(manager={**FAILED, "state": f"{state}, start"}, states=PENDING),
                "FABRIC_MANAGER_STOPPED",
                f"does not run ({state}, start)",
                id=state,
            )
            for state in ("activating", "deactivating")
        ),
        pytest.param(
            node(packages={"nvidia-fabricmanager-580": "580.178.04-0ubuntu0.24.04.1"}),
            None,
            "",
            id="of Ubuntu",
        ),
        pytest.param(
            node(**NOBODY),
            "FABRIC_MANAGER_MISSING",
            "2 NVSwitches (0000:05:00.0, 0000:06:00.0)",
            id="missing",
        ),
        pytest.param(
            node(**{**NOBODY, "states": PENDING}),
            "FABRIC_MANAGER_MISSING",
            "error 802",
            id="missing, and nothing but the cause",
        ),
        pytest.param(
            node("2901", switches=[], ports=["0000:41:00.0"], **NOBODY),
            "FABRIC_MANAGER_MISSING",
            "behind the adapters 0000:41:00.0",
            id="missing on B200",
        ),
        pytest.param(node("2901", **PORTS), None, "", id="healthy B200"),
        pytest.param(
            node("2901", **PORTS, states=PENDING),
            "FABRIC_NOT_READY",
            "0000:64:00.0: In Progress (N/A)",
            id="B200 that is not in the fabric",
        ),
        pytest.param(
            node("2901", **PORTS, subnet_manager=False),
            "SUBNET_MANAGER_STOPPED",
            "nothing configures the NVSwitches behind the adapters 0000:41:00.0",
            id="nvlsm has ended, and the states have stayed",
        ),
        pytest.param(
            node("2901", **PORTS, **{**NOBODY, "process": True}, subnet_manager=False),
            "SUBNET_MANAGER_STOPPED",
            "error 802",
            id="nvlsm has ended in a container",
        ),
        pytest.param(
            node("2901", **PORTS, manager=FAILED, process=False, subnet_manager=False),
            "FABRIC_MANAGER_STOPPED",
            "does not run (failed, exit-code)",
            id="neither runs, and nothing but the cause",
        ),
        pytest.param(
            node("2901", **PORTS, manager=FAILED, process=False, modules=["ib_umad"]),
            "FABRIC_MANAGER_STOPPED",
            "(failed, exit-code; not loaded: mlx5_ib)",
            id="no module for the adapters",
        ),
        pytest.param(node(subnet_manager=False, modules=[]), None, "", id="H100 needs none of it"),
        pytest.param(
            node(manager=FAILED, process=False),
            "FABRIC_MANAGER_STOPPED",
            "does not run (failed, exit-code)",
            id="stopped, and the state has stayed",
        ),
        pytest.param(
            node(
                manager=FAILED,
                process=False,
                log=[
                    "detected number of NVSwitches don't match with"
                    " any supported system topology, aborting fabric manager"
                ],
            ),
            "FABRIC_MANAGER_STOPPED",
            "its log ends with: detected number of NVSwitches don't match",
            id="a switch is missing",
        ),
        pytest.param(
            node(manager=None, process=False),
            "FABRIC_MANAGER_STOPPED",
            "systemd did not report its state",
            id="systemd is silent",
        ),
        pytest.param(
            node(
                packages={"nvidia-fabricmanager": "590.48.01-1"},
                manager=FAILED,
                process=False,
                log=[OTHER_VERSION],
            ),
            "FABRIC_MANAGER_VERSION",
            OTHER_VERSION,
            id="other version",
        ),
        pytest.param(
            node(packages={"nvidia-fabric-manager": "575.57.08-1"}),
            "FABRIC_MANAGER_VERSION",
            "Fabric Manager 575.57.08-1 does not work with driver 580.178.04",
            id="other version, and it still runs",
        ),
        pytest.param(
            node(states=PENDING),
            "FABRIC_NOT_READY",
            "0000:64:00.0: In Progress (N/A)",
            id="in progress",
        ),
        pytest.param(
            node(switches=[], states=PENDING, **NOBODY),
            "FABRIC_NOT_READY",
            "0000:64:00.0: In Progress (N/A)",
            id="in progress, in a virtual machine",
        ),
        pytest.param(
            node(states=states(("Completed", "Success"), ("Completed", "Insufficient Resources"))),
            "FABRIC_NOT_READY",
            "Completed (Insufficient Resources)",
            id="a bad status",
        ),
        pytest.param(
            node(states=PENDING, mode=1), "FABRIC_NOT_READY", "FABRIC_MODE=1", id="partitions"
        ),
        pytest.param(
            node(states=GOOD[:1]), "FABRIC_NOT_READY", "0000:64:00.0: no state", id="a row less"
        ),
        pytest.param(
            node(states=states(("Completed", "Success"), ("N/A", "N/A"))),
            "FABRIC_NOT_READY",
            "0000:64:00.0: N/A (N/A)",
            id="H100 that is not in the fabric",
        ),
        pytest.param(
            node(switches=[], states=[], **NOBODY),
            None,
            "",
            id="no states, and no NVSwitches",
        ),
    ],
)
def test_fabric(seen: Any, code: str | None, words: str) -> None:
    found = list(judge_fabric("gpu-1", seen))
    assert [one["code"] for one in found] == ([code] if code else [])
    assert all(words in one["message"] for one in found)


def test_what_other_findings_report_is_no_matter_of_the_fabric() -> None:
    silent = node(**NOBODY)
    silent["nvml"] = {"driver_version": None, "complete": False, "devices": []}
    assert list(judge_fabric("gpu-1", silent)) == []
    lost = node(states=GOOD[:1])
    lost["nvml"]["devices"][1]["error"] = "GPU is lost"
    lost["nvml"]["complete"] = False
    assert list(judge_fabric("gpu-1", lost)) == []
    cut = node(states=GOOD[:1])
    cut["health"]["error"] = "`nvidia-smi -q -x` ended in the middle"
    assert list(judge_fabric("gpu-1", cut)) == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"health": "Healthy"}, None),
        ({"health": "Healthy", "misconfigured": "None"}, None),
        ({"health": "Unhealthy"}, "0000:64:00.0: Unhealthy"),
        (
            {"health": "Unhealthy", "degraded": ["route_unhealthy: True"]},
            "0000:64:00.0: Unhealthy, route_unhealthy: True",
        ),
        ({"health": "Limited Capacity"}, "0000:64:00.0: Limited Capacity"),
        (
            {"misconfigured": "Incorrect SystemGuid"},
            "0000:64:00.0: no summary, configuration: Incorrect SystemGuid",
        ),
    ],
)
def test_health_of_the_links(values: dict[str, Any], words: str | None) -> None:
    report: Any = {"gpus": [{"pci_address": ADDRESSES[1], "fabric": {**GOOD[1], **values}}]}
    (state,) = fabric.states(report)
    found = list(judge_fabric("gpu-1", node(states=[GOOD[0], state])))
    assert [one["code"] for one in found] == (["FABRIC_UNHEALTHY"] if words else [])
    assert all((words or "") in one["message"] for one in found)


# -------------------------------------------------------------------------------------------------
# One odd cell


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("Unknown", "Success"),
        ("Unknown Error", "Unknown Error"),
        ("Completed", "Unknown"),
    ],
)
def test_unknown_words_are_no_fabric_that_is_not_ready(state: str, status: str) -> None:
    odd = node(states=states(("Completed", "Success"), (state, status)))
    assert list(judge_fabric("gpu-1", odd)) == []
    card = node(switches=[], states=states((state, status), (state, status)), **NOBODY)
    card["nvml"]["devices"] = [{**gpu, "uuid": None} for gpu in card["nvml"]["devices"]]
    assert list(judge_fabric("gpu-1", card)) == list(judge_unknown("gpu-1", card, None)) == []


def scene(level: str, state: str) -> tuple[Any, Any, Any]:
    """Return a node with eight GPUs, of which the third one has a fabric in these words."""
    made = copy.deepcopy(docker_node())
    seen: Any = made.observed()
    seen["fabric"]["states"][2] |= {"state": state, "status": "Unknown", "good": False}
    results = [{"uuid": gpu["uuid"], "ok": True, "error": ""} for gpu in seen["nvml"]["devices"]]
    smoke: Any = {**made.smoke, "level": level}
    return seen, made.cluster, {**smoke, "results": results if level == "compute" else []}


@pytest.mark.parametrize("state", ["Unknown", "Unknown Error", "Completed"])
def test_a_gpu_that_computed_has_a_fabric(state: str) -> None:
    seen, cluster, smoke = scene("compute", state)
    verdict = reconcile("n1", seen, 8, cluster, smoke)
    assert [one["code"] for one in verdict["findings"] if one["severity"] != "notice"] == []
    assert [gpu["lost_at"] for gpu in verdict["gpus"]] == [None] * 8


@pytest.mark.parametrize("state", ["Unknown", "Unknown Error", "Completed"])
def test_without_a_proof_the_fabric_is_unknown(state: str) -> None:
    seen, cluster, smoke = scene("list", state)
    (found,) = reconcile("n1", seen, 8, cluster, smoke)["findings"]
    assert found["code"] == "GPU_HEALTH_UNKNOWN"
    assert found["message"].endswith(f"the state of the fabric is {state} (Unknown)")
    addresses = [gpu["address"] for gpu in seen["pci"]]
    assert [one for one in addresses if one in found["message"]] == addresses[2:3]


@pytest.mark.parametrize(
    ("device", "found", "words", "not_words"),
    [
        ("31c2", {}, "journalctl -u nvidia-fabricmanager", "NMX"),
        ("31c2", {"switches": []}, "NMX controller", "journalctl"),
        ("2330", {"switches": []}, "virtual machine", "NMX"),
    ],
    ids=["NVSwitches of the node", "Azure/azhpc-images#506", "NVIDIA/nccl-tests#260"],
)
def test_who_sets_up_the_fabric(
    device: str, found: dict[str, Any], words: str, not_words: str
) -> None:
    bad = states(("Completed", "Success"), ("Completed", "Insufficient Resources"))
    (one,) = judge_fabric("gpu-1", node(device, states=bad, **found))
    assert one["code"] == "FABRIC_NOT_READY"
    assert words in one["remedy"]
    assert not_words not in one["remedy"]
