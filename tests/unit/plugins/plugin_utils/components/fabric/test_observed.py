# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes are planted after Linux's sysfs-bus-pci and proc(5)."""

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import fabric
from ansible_collections.metal.gpu.tests.unit.support import smi_xml
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant

H100, A100, B200, SWITCH, CARD = "2330", "20b2", "2901", "22a3", "1021"
UUID = f"GPU-{'0' * 8}-0000-0000-0000-{'0' * 12}"
ROW = f"0, {UUID}, NVIDIA H100, 81559, 00000000:03:00.0, Enabled, 580.1\n"
GPU = {"address": "0000:03:00.0", "uuid": "GPU-0", "name": "NVIDIA H100"}
UNIT = "Id=nvidia-fabricmanager.service\nLoadState=loaded\nActiveState={}\nUnitFileState=enabled\n"
TAIL = f"tail --lines=20 {fabric.LOG}"


def functions(*rows):
    """Return the files of functions: address, vendor, device, class."""
    return {
        f"/sys/bus/pci/devices/{address}/{name}": f"0x{value}\n"
        for address, vendor, device, class_ in rows
        for name, value in {"vendor": vendor, "device": device, "class": class_}.items()
    }


def gpu(device):
    return ("0000:03:00.0", "10de", device, "030200")


def programs(state="Completed", unit="active", **more):
    fabric_words = {**smi_xml.COMPLETED, "fabric/state": state}
    return Programs(
        {
            "nvidia-smi": (0, ROW, ""),
            "sh -c": (0, smi_xml.report([GPU], "hopper", changes={"*": fabric_words}), ""),
            "systemctl show --property=Id,Names": (0, UNIT.format(unit), ""),
            "systemctl": (0, "", ""),
            "journalctl": (0, "", ""),
            "tail": (0, "first\nlast words\n", ""),
            **more,
        }
    )


SWITCHED = functions(gpu(H100), ("0000:05:00.0", "10de", SWITCH, "068000"))


def test_a_healthy_node_with_switches(observe, tmp_path):
    plant(tmp_path, {**SWITCHED, fabric.CONFIG: "FABRIC_MODE=0\n"})
    plant(tmp_path, {"/proc/7/comm": "nv-fabricmanage\n", "/proc/8/comm": "sleep\n"})
    asked = programs()
    found = observe(asked)["fabric"]
    assert [one["address"] for one in found["switches"]] == ["0000:05:00.0"]
    assert found["manager"] == {
        "installed": True,
        "enabled": True,
        "active": True,
        "state": "active",
    }
    assert found["imex"] is None
    assert (found["process"], found["mode"], found["log"]) == (True, 0, [])
    (state,) = found["states"]
    assert state["good"] is True
    assert TAIL not in asked.asked


@pytest.mark.parametrize(("state", "unit"), [("In Progress", "active"), ("Completed", "failed")])
def test_the_log_is_read_if_there_is_something_to_explain(observe, tmp_path, state, unit):
    plant(tmp_path, SWITCHED)
    assert observe(programs(state, unit))["fabric"]["log"] == ["first", "last words"]


@pytest.mark.parametrize(
    ("planted", "has_state"),
    [
        pytest.param(functions(gpu("15f8")), False, id="P100"),
        pytest.param(functions(gpu(A100)), False, id="A100 on a PCIe card"),
        pytest.param(functions(gpu(H100)), True, id="H100 on a PCIe card"),
        pytest.param(
            functions(gpu("15f8"), ("0000:00:01.0", "10de", "22b1", "060400")),
            False,
            id="a root port of Grace",
        ),
        pytest.param(
            functions(gpu("15f8"), ("0000:00:01.0", "10de", "22ab", "068000")),
            False,
            id="another bridge",
        ),
        pytest.param(functions(), False, id="no GPU"),
    ],
)
def test_a_node_without_switches_costs_nothing(observe, tmp_path, planted, has_state):
    plant(tmp_path, {**planted, "/proc/7/comm": "nv-fabricmanage\n"})
    asked = programs()
    found = observe(asked)["fabric"]
    assert (found["switches"], found["manager"], found["process"]) == ([], None, False)
    assert bool(found["states"]) is has_state
    assert not any("Names" in line and "fabricmanager" in line for line in asked.asked)


@pytest.mark.parametrize(
    ("device", "data", "ports"),
    [
        (B200, b"\x82\x00SMDL=SW_MNG\x00", ["0000:41:00.0"]),
        (B200, b"\x82\x00ConnectX-7\x00", []),
        (B200, None, []),
        (H100, b"SMDL=SW_MNG", []),
    ],
)
def test_switches_behind_adapters(observe, tmp_path, device, data, ports):
    plant(tmp_path, functions(gpu(device), ("0000:41:00.0", "15b3", CARD, "020700")))
    if data is not None:
        (tmp_path / "sys/bus/pci/devices/0000:41:00.0/vpd").write_bytes(data)
    assert observe(programs())["fabric"]["ports"] == ports


ADAPTER = functions(gpu(B200), ("0000:41:00.0", "15b3", CARD, "020700"))
NVLSM = "/opt/nvidia/nvlsm/sbin/nvlsm\0-F\0/usr/share/nvidia/nvlsm/nvlsm.conf\0"
RELEASE = {"/proc/sys/kernel/osrelease": "6.8.0-151-generic\n"}
MODULES_DEP = "/lib/modules/6.8.0-151-generic/modules.dep"


def plant_adapter(root, files):
    plant(root, {**ADAPTER, **RELEASE, **files})
    (root / "sys/bus/pci/devices/0000:41:00.0/vpd").write_bytes(b"\x82\x00SMDL=SW_MNG\x00")


@pytest.mark.parametrize(
    ("command_line", "runs"),
    [(NVLSM, True), ("nvlsm\0", True), ("tail\0-f\0/var/log/nvlsm.log\0", False), ("", False)],
)
def test_the_subnet_manager(observe, tmp_path, command_line, runs):
    plant_adapter(tmp_path, {"/proc/9/cmdline": command_line})
    assert observe(programs())["fabric"]["subnet_manager"] is runs


@pytest.mark.parametrize(
    ("files", "loaded", "missing"),
    [
        pytest.param({}, [], ["mlx5_ib", "ib_umad"], id="neither"),
        pytest.param(
            {
                "/sys/module/mlx5_ib/initstate": "live\n",
                MODULES_DEP: "kernel/drivers/infiniband/core/ib_umad.ko.zst: kernel/ib_core.ko\n",
            },
            ["mlx5_ib"],
            [],
            id="one not loaded",
        ),
        pytest.param(
            {
                "/sys/module/ib_umad/initstate": "live\n",
                MODULES_DEP: "updates/dkms/mlx5-ib.ko: updates/dkms/ib_umad_ext.ko\n",
            },
            ["ib_umad"],
            [],
            id="of DOCA",
        ),
        pytest.param(
            {MODULES_DEP: "kernel/mlx5_ib.ko: kernel/ib_umad.ko\n"}, [], ["ib_umad"], id="named"
        ),
    ],
)
def test_the_modules_of_the_kernel(observe, tmp_path, files, loaded, missing):
    plant_adapter(tmp_path, files)
    found = observe(programs())["fabric"]
    assert (found["modules"], found["missing_modules"]) == (loaded, missing)


def test_the_log_is_read_if_only_the_subnet_manager_has_ended(observe, tmp_path):
    plant_adapter(tmp_path, {})
    assert observe(programs())["fabric"]["log"] == ["first", "last words"]
    plant(tmp_path, {"/proc/9/cmdline": NVLSM})
    assert observe(programs())["fabric"]["log"] == []


def test_only_switches_behind_adapters_need_them(observe, tmp_path):
    plant(tmp_path, {**SWITCHED, "/proc/9/cmdline": NVLSM})
    found = observe(programs())["fabric"]
    assert (found["subnet_manager"], found["modules"], found["missing_modules"]) == (False, [], [])
