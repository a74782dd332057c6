# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""CDI specifications and the parts of GPUs (MIG instances) that exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    DONE,
    merge,
    plan,
)

PLANNER = "nvidia_container_runtime"
SERVICES, ADMINS = "/var/run/cdi/nvidia.yaml", "/etc/cdi/admin.yaml"
PLUGINS = "/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json"
KINDS = {SERVICES: "nvidia.com/gpu", ADMINS: "nvidia.com/gpu"}
KINDS[PLUGINS] = "k8s.device-plugin.nvidia.com/gpu"
GPUS = DONE["nvml"]["devices"]
INSTANCES = (7, 8)  # GPU instances of the first GPU; the second one is whole


def files(gpu_instance: int) -> list[str]:
    """As on a node: NVIDIA's numbers of the first GPU."""
    first = 3 + 9 * gpu_instance
    return [f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in (first, first + 1)]


RIGHT: dict[str, Sequence[str]] = {"0:0": files(7), "0:1": files(8), "1": ()}
BY_TYPE = {"mig0:0": files(7), "mig0:1": files(8), "gpu1": ()}
BY_UUID = {"MIG-1": files(7), "MIG-2": files(8), GPUS[1]["uuid"]: ()}
FIRST = {"0:0": files(7), "1": ()}


def every(devices: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Add the device `all`, as the generator does."""
    return {**devices, "all": [file for some in devices.values() for file in some]}


def node(
    devices: Mapping[str, Sequence[str]],
    path: str = SERVICES,
    *,
    mode: str | None = "Enabled",
    instances: Sequence[int] | None = INSTANCES,
    **changes: Any,
) -> dict[str, Any]:
    """Return a node with a specification, and with these instances of its first GPU."""
    found = [
        {"index": index, "gpu_instance": one, "compute_instance": 0, "files": files(one)}
        for index, one in enumerate(instances or ())
    ]
    reports = [
        {
            "pci_address": GPUS[0]["pci_address"],
            "mig": mode,
            "mig_instances": found,
            "virtualization": None,
        },
        {
            "pci_address": GPUS[1]["pci_address"],
            "mig": "Disabled",
            "mig_instances": [],
            "virtualization": None,
        },
    ]
    if instances is None:
        reports[0]["mig_instances"] = None
    specifications = {
        path: every(devices),
        **({} if path == SERVICES else {SERVICES: every(RIGHT)}),
    }
    named = {
        one: {f"{KINDS[one]}={name}": list(some) for name, some in listed.items()}
        for one, listed in specifications.items()
    }
    cdi = {
        "spec_files": list(named),
        "kinds": {one: KINDS[one] for one in named},
        "devices": [name for listed in named.values() for name in listed],
        "names": {one: list(listed) for one, listed in named.items()},
        "parts": {
            one: {name: some for name, some in listed.items() if some}
            for one, listed in named.items()
        },
    }
    return merge(merge(DONE, {"health": {"gpus": reports}, "cdi": cdi}), changes)


def found(observed: dict[str, Any]) -> tuple[list[str], list[str]]:
    planned = plan(PLANNER, observed)
    assert planned["refusals"] == []
    steps = [step["reason"] for step in planned["steps"] if step["slug"] == "cdi"]
    return steps, [one["message"] for one in planned["notices"] if "CDI" in one["code"]]


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param(RIGHT, id="by index"),
        pytest.param(BY_TYPE, id="by type and index"),
        pytest.param(BY_UUID, id="by UUID"),
        pytest.param({**RIGHT, **BY_UUID}, id="as the service writes it"),
    ],
)
@pytest.mark.parametrize("path", [SERVICES, ADMINS, PLUGINS])
def test_specification_of_the_instances_that_exist(
    devices: dict[str, Sequence[str]], path: str
) -> None:
    assert found(node(devices, path)) == ([], [])


@pytest.mark.parametrize(
    ("devices", "instances", "reason"),
    [
        pytest.param(RIGHT, (7, 8, 9), "the MIG instance 0:2 is missing", id="created"),
        pytest.param(BY_UUID, (7, 8, 9), "the MIG instance 0:2 is missing", id="created, UUIDs"),
        pytest.param(
            RIGHT, (7,), "0:1 is a MIG instance that the node no longer has", id="destroyed"
        ),
        pytest.param(
            BY_TYPE, (7,), "mig0:1 is a MIG instance that the node no longer has", id="by type"
        ),
        pytest.param(
            BY_UUID,
            (7,),
            "MIG-2 has device files of a MIG instance that the node no longer has",
            id="destroyed, UUIDs",
        ),
        pytest.param(
            RIGHT, (7, 9), "0:1 has the device files of another MIG instance", id="another one"
        ),
        pytest.param(
            RIGHT, (8, 7), "0:0 has the device files of another MIG instance", id="in another order"
        ),
        pytest.param(
            RIGHT, (), "0:0 is a MIG instance that the node no longer has", id="all destroyed"
        ),
        pytest.param(
            {**RIGHT, "0": ()}, (7, 8), "is whole, but its MIG mode is on", id="still whole"
        ),
        pytest.param(
            {GPUS[0]["uuid"]: (), **BY_UUID}, (7, 8), "is whole, but", id="still whole, UUIDs"
        ),
        pytest.param({"0": (), "1": ()}, (), "is whole, but", id="split, and no instance"),
    ],
)
def test_instances_that_changed_since(
    devices: dict[str, Sequence[str]], instances: tuple[int, ...], reason: str
) -> None:
    """The service's file is generated again, and whoever wrote another one has to do it."""
    steps, notices = found(node(devices, instances=instances))
    assert len(steps) == 1
    assert notices == []
    assert steps[0].startswith("in the CDI specification, ")
    assert steps[0].endswith(reason) or f"{reason} " in steps[0]
    if "missing" in reason:
        return
    # The service's own file is right, or is generated again, too.
    _steps, notices = found(node(devices, ADMINS, instances=instances))
    assert [f"{ADMINS}, " in one and reason in one for one in notices] == [True]


def test_node_whose_instances_are_all_gone() -> None:
    """The generator would fail, so one notice says what to do first."""
    observed = node(RIGHT, instances=())
    observed["health"]["gpus"][1] |= {"mig": "Enabled", "mig_instances": []}
    planned = plan(PLANNER, observed)
    assert [step for step in planned["steps"] if step["slug"] == "cdi"] == []
    assert [one["code"] for one in planned["notices"] if "CDI" in one["code"]] == ["CDI_MIG_EMPTY"]


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        pytest.param(
            {"0:0": (), "0:1": (), "1": ()}, "0:0 lacks the device files of its MIG", id="by index"
        ),
        pytest.param({**RIGHT, "0:1": ()}, "0:1 lacks the device files of its MIG", id="one"),
        pytest.param({**BY_TYPE, "mig0:1": ()}, "mig0:1 lacks the device files", id="by type"),
        pytest.param(
            {"0:0": (), "0:1": (), **dict.fromkeys(BY_UUID, ())},
            "0:0 lacks the device files",
            id="as the service writes it",
        ),
        pytest.param(dict.fromkeys(BY_UUID, ()), "the MIG instance 0:0 is missing", id="by UUID"),
    ],
)
def test_files_that_did_not_exist_when_it_was_written(
    devices: dict[str, Sequence[str]], reason: str
) -> None:
    """The generator omits them without an error (tests/recorded/mig.yml)."""
    (step,), notices = found(node(devices))
    assert reason in step
    assert notices == []
    steps, (notice,) = found(node(devices, PLUGINS))
    assert steps == []
    assert reason in notice
    assert found(node(devices, ADMINS)) == ([], [])


def test_file_of_others_can_list_some_instances_only() -> None:
    assert found(node(FIRST, ADMINS)) == ([], [])
    assert found(node({"1": ()}, ADMINS)) == ([], [])


@pytest.mark.parametrize(
    ("devices", "toolkit"),
    [
        pytest.param({"0:0": files(7)}, {"cdi_devices": ["0:0"]}, id="some devices"),
        pytest.param(RIGHT, {"cdi_has_all": False}, id="without the device all"),
    ],
)
def test_what_the_admin_omits_is_not_generated_in_every_run(
    devices: dict[str, Sequence[str]], toolkit: dict[str, Any]
) -> None:
    observed = node(devices, toolkit=toolkit)
    if "cdi_has_all" in toolkit:
        observed["cdi"]["devices"].remove("nvidia.com/gpu=all")
    assert found(observed) == ([], [])
    observed["toolkit"] |= {"cdi_devices": None, "cdi_has_all": True}
    steps, _notices = found(observed)
    assert len(steps) == 1


def test_service_that_lists_no_device() -> None:
    """It would write the same specification in every run. A damaged one is written again."""
    observed = node({}, toolkit={"cdi_devices": ["none"], "cdi_has_all": False})
    observed["cdi"] |= {"devices": [], "names": {SERVICES: []}, "parts": {SERVICES: {}}}
    assert found(observed) == ([], [])
    observed["cdi"]["errors"] = {SERVICES: f"{SERVICES}, line 1: damaged"}
    assert found(observed) == ([f"{SERVICES}, line 1: damaged"], [])
    observed["cdi"]["errors"] = {}
    observed["toolkit"] |= {"cdi_devices": None}
    assert found(observed) == (["no CDI specification has a GPU"], [])


def test_device_plugin_that_has_to_start_again() -> None:
    """It lists everything at its start."""
    steps, (notice,) = found(node(FIRST, PLUGINS))
    assert steps == []
    assert f"{PLUGINS}, the MIG instance 0:1 is missing" in notice


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        pytest.param(RIGHT, "is in parts (0:0), but its MIG mode is off", id="by index"),
        pytest.param(BY_TYPE, "is in parts (mig0:0), but its MIG mode is off", id="by type"),
        pytest.param(
            {**BY_UUID, GPUS[0]["uuid"]: ()}, "MIG-1 has device files of a MIG instance", id="UUIDs"
        ),
    ],
)
def test_mode_that_was_switched_off(devices: dict[str, Sequence[str]], reason: str) -> None:
    steps, notices = found(node({**devices, "0": ()}, mode="Disabled", instances=()))
    assert [reason in step for step in steps] == [True]
    assert notices == []


LOST = {"nvml": {"devices": [{**GPUS[0], "error": "GPU is lost"}, GPUS[1]], "complete": False}}


@pytest.mark.parametrize(
    "unknown",
    [
        pytest.param({"instances": None}, id="not reported"),
        pytest.param({"instances": None, "mode": None}, id="mode unknown"),
        pytest.param({"health": {"error": "cut"}}, id="a report that was cut"),
        pytest.param({"nvml": {"complete": False}}, id="a GPU is missing"),
        pytest.param(LOST, id="a GPU is lost"),
    ],
)
def test_unknown_instances_are_no_reason(unknown: dict[str, Any]) -> None:
    changed = {"instances": (7, 8, 9), **unknown}
    assert found(node(RIGHT, **changed)) == ([], [])


def test_files_that_the_driver_does_not_list() -> None:
    observed = node(RIGHT, instances=(7, 8, 9))
    for one in observed["health"]["gpus"][0]["mig_instances"]:
        one["files"] = []
    assert found(observed) == ([], [])


def test_gpu_that_cannot_be_split_beside_one_that_is() -> None:
    observed = node(RIGHT, instances=(7,))
    observed["health"]["gpus"][1]["mig"] = None
    (step,), _notices = found(observed)
    assert "0:1 is a MIG instance that the node no longer has" in step


def test_device_with_more_files_than_its_instance_needs() -> None:
    """The generator may ask NVIDIA's library for them, which decides."""
    both = [*files(7), *files(8)]
    assert found(node({"0:0": both, "0:1": both, "1": ()})) == ([], [])


def test_file_with_all_only() -> None:
    """The administrator's choice: which GPUs it has is not in a name."""
    assert found(node({}, ADMINS)) == ([], [])
    observed = node(RIGHT, ADMINS)
    observed["cdi"]["names"][ADMINS] = ["nvidia.com/gpu=all"]
    assert found(observed) == ([], [])
