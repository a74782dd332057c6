# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role does on nodes with NVSwitches, and that it does nothing on others."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    fabric,
    subnet_manager,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import SYSTEMS
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.driver import (
    test_distribution,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    DONE,
    VIRGIN,
    codes,
    merge,
    names,
    plan,
)
from ansible_collections.metal.gpu.tests.unit.support import records

UBUNTU = test_distribution.UBUNTU
VERSION = "580.178.04"
PACKAGE = "nvidia-fabricmanager"
SWITCH = {
    "address": "0000:c4:00.0",
    "vendor": "10de",
    "device": "22a3",
    "class": "0680",
    "driver": None,
    "numa_node": 1,
}
GPUS = [{**gpu, "device": "2330"} for gpu in VIRGIN["pci"]]
SWITCHES = {"fabric": {"switches": [SWITCH]}, "pci": GPUS}
PORTS = {"fabric": {"ports": ["0000:41:00.0"]}, "pci": [{**gpu, "device": "2901"} for gpu in GPUS]}
NVLSM = {
    "fabric": {"packages": {"nvlsm": "2025.10.14-1"}},
    "packages": {"nvlsm": {"version": "2025.10.14-1", "held": True}},
}
TOOLS = {"packages": {name: {"version": "1", "held": False} for name in subnet_manager.TOOLS}}
LOADED = {"fabric": {"modules": ["mlx5_ib", "ib_umad"]}}
RUNNING = {"installed": True, "enabled": True, "active": True, "state": "active, running"}
STOPPED = {**RUNNING, "active": False, "state": "failed, exit-code"}
NO_UNIT = {"installed": False, "enabled": False, "active": False, "state": "inactive, dead"}
URL = {"repository_url": ""}
RUNFILE = {
    "source": "runfile",
    "version": "",
    "runfile_url": f"https://download.example/NVIDIA-Linux-x86_64-{VERSION}.run",
    "runfile_sha256": "0123456789abcdef" * 4,
}


def with_manager(version: str = VERSION, unit: Any = None, name: str = PACKAGE) -> dict[str, Any]:
    """Return changes: Fabric Manager is installed, by whomever."""
    package = f"{version}-1"
    return {
        "fabric": {"packages": {name: package}, "manager": unit or RUNNING},
        "driver": {"packages": {name: package}},
        "packages": {name: {"version": package, "held": True}},
    }


def recorded(version: str = VERSION, before: str | None = None) -> dict[str, Any]:
    """Return changes: the role recorded Fabric Manager."""
    entry = {PACKAGE: {"version": f"{version}-*", "before": before}}
    return {
        "ours": {
            "packages": {"nvidia_driver": {"packages": entry}},
            "files": [*DONE["ours"]["files"], fabric.DROP_IN["path"]],
        }
    }


def node(*changes: dict[str, Any], base: dict[str, Any] = VIRGIN) -> dict[str, Any]:
    for one in changes:
        base = merge(base, one)
    return base


def ready() -> dict[str, Any]:
    """Return a node on which the role has done everything."""
    return node(SWITCHES, {"fabric": {"manager": NO_UNIT}}, with_manager(), recorded(), base=DONE)


def of_driver(planned: dict[str, Any], *words: str) -> list[str]:
    return [name for name in names(planned) if any(word in name for word in words)]


def test_driver_and_fabric_manager_are_one_transaction_of_one_version() -> None:
    planned = plan("nvidia_driver", node(SWITCHES), flavour="open")
    assert codes(planned) == []
    assert f"{PACKAGE}={VERSION}-*" in planned["data"]["packages"]
    assert PACKAGE in planned["data"]["hold"]
    assert planned["data"]["packages_record"]["packages"][PACKAGE]["before"] is None
    assert names(planned)[-2:] == [
        "Start Fabric Manager before the kubelet",
        "Start Fabric Manager",
    ]
    assert planned["data"]["fabric_awaited"] is True


def test_nothing_of_it_without_a_switch() -> None:
    for base in (VIRGIN, DONE):
        planned = plan("nvidia_driver", node({"pci": GPUS}, base=base))
        assert of_driver(planned, "Fabric") == []
        assert not any(PACKAGE in one for one in planned["data"].get("packages", []))


def test_second_run_finds_nothing_to_do() -> None:
    planned = plan("nvidia_driver", ready())
    assert (planned["steps"], planned["refusals"], planned["notices"]) == ([], [], [])


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        pytest.param({"fabric": {"manager": STOPPED}}, ["Start Fabric Manager"], id="stopped"),
        pytest.param(
            {"fabric": {"manager": {**RUNNING, "enabled": False}}},
            ["Start Fabric Manager"],
            id="not enabled",
        ),
        pytest.param(
            {"ours": {"files": DONE["ours"]["files"]}},
            ["Start Fabric Manager before the kubelet"],
            id="no drop-in",
        ),
        pytest.param(
            {"packages": {PACKAGE: {"version": f"{VERSION}-1", "held": False}}},
            ["Hold the driver"],
            id="not held",
        ),
    ],
)
def test_what_is_missing_is_planned(changes: dict[str, Any], steps: list[str]) -> None:
    assert names(plan("nvidia_driver", node(changes, base=ready()))) == steps


def test_a_node_of_the_role_gets_a_missing_fabric_manager() -> None:
    found = node(SWITCHES, {"fabric": {"manager": NO_UNIT}}, base=DONE)
    planned = plan("nvidia_driver", found, **URL)
    assert planned["data"]["fabric_packages"] == [f"{PACKAGE}={VERSION}-*"]
    assert names(planned) == [
        "Install python3-debian for the driver repository",
        "Add the repository of the driver",
        "Install Fabric Manager",
        "Hold the driver",
        "Start Fabric Manager before the kubelet",
        "Start Fabric Manager",
    ]
    # Only what is new: the driver is not touched.
    assert "packages" not in planned["data"]


def test_our_fabric_manager_follows_the_driver() -> None:
    """Somebody changed its version, and the driver stays the role's nevertheless."""
    old = with_manager("575.57.08", STOPPED)
    planned = plan("nvidia_driver", node(old, recorded("575.57.08"), base=ready()), **URL)
    assert planned["data"]["fabric_packages"] == [f"{PACKAGE}={VERSION}-*"]
    assert planned["data"]["fabric_replaces"] is True
    assert of_driver(planned, "Fabric") == ["Install Fabric Manager", "Start Fabric Manager"]


def test_nothing_is_installed_beside_a_driver_of_the_admin() -> None:
    found = node(SWITCHES, {"fabric": {"manager": NO_UNIT}}, base=DONE)
    found["ours"] = {**found["ours"], "packages": {}, "files": []}
    assert names(plan("nvidia_driver", found)) == []


def test_a_fabric_manager_of_the_admin_is_started_and_kept() -> None:
    found = node(SWITCHES, with_manager(unit=STOPPED))
    planned = plan("nvidia_driver", found, flavour="open")
    assert not any(PACKAGE in one for one in planned["data"]["packages"])
    assert PACKAGE not in planned["data"]["packages_record"]["packages"]
    assert "Start Fabric Manager" in names(planned)


def test_an_unheld_fabric_manager_of_the_admin_is_named() -> None:
    loose = {"packages": {PACKAGE: {"version": f"{VERSION}-1", "held": False}}}
    planned = plan("nvidia_driver", node(SWITCHES, with_manager(), loose, base=DONE))
    (notice,) = planned["notices"]
    assert notice["code"] == "PACKAGES_UNHELD"
    assert PACKAGE in notice["message"]


def test_one_of_another_version_is_not_started_with_a_kept_driver() -> None:
    found = node(SWITCHES, with_manager("575.57.08", STOPPED), base=DONE)
    assert names(plan("nvidia_driver", found)) == []


def test_one_in_a_container_is_left_alone() -> None:
    found = node(SWITCHES, {"fabric": {"manager": NO_UNIT, "process": True}})
    planned = plan("nvidia_driver", found, flavour="open")
    assert codes(planned) == []
    assert of_driver(planned, "Fabric") == []
    assert not any(PACKAGE in one for one in planned["data"]["packages"])


@pytest.mark.parametrize("state", ["activating, start", "deactivating, stop-sigterm"])
def test_a_service_that_starts_or_stops_is_not_in_a_container(state: str) -> None:
    unit = {**STOPPED, "state": state}
    found = node(SWITCHES, with_manager(unit=unit), {"fabric": {"process": True}}, base=DONE)
    assert "Start Fabric Manager" in names(plan("nvidia_driver", found))


@pytest.mark.parametrize(
    ("changes", "desired", "code"),
    [
        pytest.param(
            [SWITCHES, with_manager("575.57.08")], {}, "FABRIC_MANAGER_TAKEN", id="other version"
        ),
        pytest.param(
            [PORTS, {"fabric": {"missing_modules": ["ib_umad"]}}],
            {},
            "FABRIC_MODULES_MISSING",
            id="B200, and a kernel without ib_umad",
        ),
        pytest.param(
            [PORTS, with_manager()],
            {**RUNFILE, "flavour": "open"},
            "SUBNET_MANAGER_MISSING",
            id="B200, .run file",
        ),
        pytest.param(
            [PORTS], {**RUNFILE, "flavour": "open"}, "FABRIC_PACKAGES_UNKNOWN", id="B200, nothing"
        ),
        pytest.param(
            [SWITCHES],
            {"version": "", "source": "distribution", "flavour": "proprietary"},
            "FABRIC_PACKAGES_UNKNOWN",
            id="archive",
        ),
        pytest.param(
            [SWITCHES], {"version": "560.35.03"}, "FABRIC_PACKAGES_UNKNOWN", id="unknown name"
        ),
        pytest.param(
            [SWITCHES], {**RUNFILE, "flavour": "open"}, "FABRIC_PACKAGES_UNKNOWN", id=".run file"
        ),
        pytest.param(
            [SWITCHES, with_manager("575.57.08")],
            {**RUNFILE, "flavour": "open"},
            "FABRIC_MANAGER_TAKEN",
            id=".run file, other version",
        ),
    ],
)
def test_no_driver_without_a_fitting_fabric_manager(
    changes: list[dict[str, Any]], desired: dict[str, Any], code: str
) -> None:
    planned = plan("nvidia_driver", node(*changes), **{**URL, **desired})
    assert codes(planned)[0] == code
    assert planned["steps"] == []


def test_a_fabric_manager_of_the_admin_is_started_beside_a_run_file() -> None:
    found = node(SWITCHES, with_manager(unit=STOPPED))
    found["driver"]["packages"] = {}
    planned = plan("nvidia_driver", found, flavour="open", **RUNFILE)
    assert codes(planned) == []
    assert of_driver(planned, "Fabric", ".run") == [
        "Install the driver from the .run file",
        "Start Fabric Manager before the kubelet",
        "Start Fabric Manager",
    ]
    assert planned["data"]["fabric_awaited"] is True


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_switch_to_a_run_file_takes_no_fabric_manager_away(is_ours: bool) -> None:
    """Nothing would put it back, and every CUDA program would end with error 802."""
    installed = {
        name: {"version": one["version"], "before": None}
        for name, one in DONE["packages"].items()
        if name in DONE["driver"]["packages"]
    }
    ours = {"ours": {"packages": {"nvidia_driver": {"packages": installed}}}}
    found = node(ours, base=ready())
    if not is_ours:
        found["ours"] = {**found["ours"], "packages": {}, "files": []}
        found["repositories"] = {}
    planned = plan("nvidia_driver", found, switch_ok=True, flavour="open", **RUNFILE)
    removed = PACKAGE in planned["data"]["former"]
    assert codes(planned) == (["FABRIC_PACKAGES_UNKNOWN"] if removed else [])
    assert removed or not is_ours


def test_fabric_manager_of_ubuntus_archive() -> None:
    (source,) = UBUNTU["package_sources"]
    wish = {**URL, "version": "", "source": "distribution", "flavour": "open"}
    (refusal,) = plan("nvidia_driver", node(UBUNTU, SWITCHES), **wish)["refusals"]
    assert refusal["code"] == "FABRIC_PACKAGES_UNKNOWN"
    assert "nvidia-fabricmanager-580 is in the component multiverse" in refusal["message"]
    has_it = {"package_sources": [{**source, "components": "main restricted multiverse"}]}
    planned = plan("nvidia_driver", node(UBUNTU, SWITCHES, has_it), **wish)
    assert codes(planned) == []
    assert "nvidia-fabricmanager-580=580.*" in planned["data"]["packages"]
    assert "nvidia-fabricmanager-580" in planned["data"]["hold"]
    assert names(planned)[-1] == "Start Fabric Manager"


def test_switches_behind_adapters_get_a_subnet_manager() -> None:
    """Of any version: it is a date. The tools are the system's: nothing holds or removes them."""
    planned = plan("nvidia_driver", node(PORTS))
    data = planned["data"]
    assert codes(planned) == []
    assert {f"{PACKAGE}={VERSION}-*", "nvlsm", *subnet_manager.TOOLS} <= set(data["packages"])
    assert {PACKAGE, "nvlsm"} <= set(data["hold"])
    assert {PACKAGE, "nvlsm"} <= set(data["packages_record"]["packages"])
    assert not {*data["hold"], *data["packages_record"]["packages"]} & {*subnet_manager.TOOLS}
    assert names(planned)[-3:] == [
        "Start Fabric Manager before the kubelet",
        "Load the modules for Fabric Manager, now and at boot",
        "Start Fabric Manager",
    ]
    assert data["fabric_modules"] == ["mlx5_ib", "ib_umad"]
    assert data["fabric_modules_load"] == {
        "path": "/etc/modules-load.d/metal-gpu-fabric.conf",
        "block": "ib_umad\n",
    }
    assert data["fabric_awaited"] is True


def ready_behind_adapters() -> dict[str, Any]:
    """Return a node with NVLink 5 on which the role has done everything."""
    recorded_ = ready()["ours"]["packages"]["nvidia_driver"]["packages"]
    entry = {"nvlsm": {"version": "2025.10.14-1", "before": None}}
    of_role = {"packages": {"nvidia_driver": {"packages": {**recorded_, **entry}}}}
    own = own_files.FABRIC_MODULES_LOAD
    done = node(PORTS, {"fabric": {"switches": []}}, NVLSM, TOOLS, LOADED, base=ready())
    named = {"driver": {"modules_load": [*ready()["driver"]["modules_load"], "ib_umad"]}}
    return node({"ours": {**of_role, "files": [*done["ours"]["files"], own]}}, named, base=done)


def test_second_run_behind_adapters_finds_nothing_to_do() -> None:
    planned = plan("nvidia_driver", ready_behind_adapters())
    assert (planned["steps"], planned["refusals"], planned["notices"]) == ([], [], [])


@pytest.mark.parametrize(
    ("changes", "steps", "modules"),
    [
        pytest.param(
            {"fabric": {"modules": ["mlx5_ib"]}},
            ["Load the modules for Fabric Manager, now and at boot"],
            (["ib_umad"], None),
            id="not loaded",
        ),
        pytest.param(
            {"driver": {"modules_load": DONE["driver"]["modules_load"]}},
            ["Load the modules for Fabric Manager, now and at boot"],
            ([], subnet_manager.MODULES_LOAD),
            id="not at boot",
        ),
        pytest.param(
            {"packages": {"nvlsm": {"version": "2025.10.14-1", "held": False}}},
            ["Hold the driver"],
            ([], None),
            id="not held",
        ),
    ],
)
def test_what_is_missing_behind_adapters_is_planned(
    changes: dict[str, Any], steps: list[str], modules: tuple[list[str], Any]
) -> None:
    planned = plan("nvidia_driver", node(changes, base=ready_behind_adapters()))
    assert names(planned) == steps
    data = planned["data"]
    assert (data["fabric_modules"], data["fabric_modules_load"]) == modules


def test_a_node_of_the_role_gets_a_missing_subnet_manager() -> None:
    found = ready_behind_adapters()
    for name in ("nvlsm", "infiniband-diags"):
        del found["packages"][name]
    planned = plan("nvidia_driver", found, **URL)
    assert planned["data"]["fabric_packages"] == [
        f"{PACKAGE}={VERSION}-*",
        "nvlsm",
        "infiniband-diags",
    ]
    assert "Install Fabric Manager" in names(planned)


def test_another_version_of_the_subnet_manager_does_not_make_the_driver_the_admins() -> None:
    newer = {"packages": {"nvlsm": {"version": "2025.12.211-1", "held": True}}}
    planned = plan("nvidia_driver", node(newer, base=ready_behind_adapters()), state="absent")
    assert "nvidia-driver-cuda" in planned["data"]["packages"]
    assert "nvlsm" not in planned["data"]["packages"]


def test_a_subnet_manager_of_the_admin_is_kept() -> None:
    found = node(PORTS, NVLSM, TOOLS, with_manager(unit=STOPPED))
    for desired in ({}, {**RUNFILE, "flavour": "open"}):
        if desired:
            found["driver"]["packages"] = {}
        planned = plan("nvidia_driver", found, **desired)
        assert codes(planned) == []
        assert not any("nvlsm" in one for one in planned["data"].get("packages", []))
        assert of_driver(planned, "Fabric")[-1] == "Start Fabric Manager"


def test_a_fabric_manager_of_the_admin_gets_a_subnet_manager() -> None:
    planned = plan("nvidia_driver", node(PORTS, with_manager(unit=STOPPED)))
    assert codes(planned) == []
    assert "nvlsm" in planned["data"]["packages"]
    assert not any(PACKAGE in one for one in planned["data"]["packages"])


def test_ubuntus_archive_has_no_subnet_manager() -> None:
    (source,) = UBUNTU["package_sources"]
    has_it = {"package_sources": [{**source, "components": "main restricted multiverse"}]}
    wish = {**URL, "version": "", "source": "distribution", "flavour": "open"}
    planned = plan("nvidia_driver", node(UBUNTU, PORTS, has_it), **wish)
    assert codes(planned) == ["SUBNET_MANAGER_MISSING"]
    planned = plan("nvidia_driver", node(UBUNTU, PORTS, has_it, NVLSM), **wish)
    assert codes(planned) == []
    assert "nvidia-fabricmanager-580=580.*" in planned["data"]["packages"]


def test_nothing_of_it_for_fabric_manager_in_a_container() -> None:
    found = node(PORTS, {"fabric": {"manager": NO_UNIT, "process": True}})
    planned = plan("nvidia_driver", found)
    assert of_driver(planned, "Fabric") == []
    assert not {"nvlsm", *subnet_manager.TOOLS} & set(planned["data"]["packages"])


def test_teardown_behind_adapters() -> None:
    planned = plan("nvidia_driver", ready_behind_adapters(), state="absent")
    assert {PACKAGE, "nvlsm"} <= set(planned["data"]["packages"])
    assert not set(planned["data"]["packages"]) & {*subnet_manager.TOOLS}
    assert own_files.FABRIC_MODULES_LOAD in planned["data"]["files"]


def test_with_partitions_nobody_waits() -> None:
    found = node({"fabric": {"mode": 1, "manager": STOPPED}}, base=ready())
    assert plan("nvidia_driver", found)["data"]["fabric_awaited"] is False


def test_teardown_takes_what_the_role_installed() -> None:
    planned = plan("nvidia_driver", ready(), state="absent")
    assert PACKAGE in planned["data"]["packages"]
    assert names(planned)[0] == "Stop Fabric Manager"
    assert "Remove the drop-in of Fabric Manager" in names(planned)


def test_teardown_leaves_the_admins() -> None:
    planned = plan("nvidia_driver", node(SWITCHES, with_manager(), base=DONE), state="absent")
    assert PACKAGE not in planned["data"]["packages"]
    assert of_driver(planned, "Fabric") == []


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda one: f"{one.id}-{one.version}")
@pytest.mark.parametrize("branch", [550, 570, 575, 580, 595])
def test_names_are_those_of_the_records(system: Any, branch: int) -> None:
    """A name that the role uses was seen in the repository of the system."""
    name = fabric.package_name(system, branch)
    if name is None:
        return
    (repository,) = records.repositories(system.driver.url, system.driver.suite)
    assert records.judge(repository, records.Item("package", name)).state == records.RECORDED


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda one: f"{one.id}-{one.version}")
def test_the_subnet_manager_is_in_every_repository(system: Any) -> None:
    (repository,) = records.repositories(system.driver.url, system.driver.suite)
    assert records.judge(repository, records.Item("package", "nvlsm")).state == records.RECORDED
