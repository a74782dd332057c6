# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `metal-gpu doctor` says of GPUs that the driver does not serve, and of virtual machines.

Each row is a public thread, as far as its lines matter. The lines of the kernel log go through the
reader, as on a node.
"""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import kernel_log
from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output
from ansible_collections.metal.gpu.tests.unit.support import done, smi_xml
from metal_gpu.hosts import Host
from metal_gpu.nodes import Node
from metal_gpu.terminal import doctor_report

FIRST, SECOND = "0000:03:00.0", "0000:82:00.0"
LOAD = "nvidia-nvlink: Nvlink Core is being initialized, major device number 236"
NO_DRIVER = {
    "code": "driver_not_loaded",
    "exit_code": 9,
    "message": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
}
NO_DEVICES = {"code": "no_devices", "exit_code": 6, "message": "No devices were found"}
MISMATCH = {
    "code": "library_mismatch",
    "exit_code": 18,
    "message": "Failed to initialize NVML: Driver/library version mismatch",
}
HANGING = {
    "code": "timeout",
    "exit_code": None,
    "message": "nvidia-smi did not end within 30 s",
}
OPEN = (
    "NVRM: The NVIDIA GPU {} (PCI ID: 10de:1bb1)\n"
    "               NVRM: installed in this system is not supported by open\n"
    "               NVRM: nvidia.ko because it does not include the required GPU"
)
RELEASE = (
    "NVRM: The NVIDIA GPU {} (PCI ID: 10de:26b9)\n"
    "               NVRM: installed in this system is not supported by the\n"
    "               NVRM: NVIDIA {} driver release."
)
FELL_OFF = "NVRM: Xid (PCI:0000:82:00): 79, GPU has fallen off the bus."
REPLACE = "replace a GPU"


def log(*lines: str) -> dict[str, Any]:
    text = "".join(f"[{number + 10:5}.000000] {line}\n" for number, line in enumerate(lines))
    found = kernel_log.parse(Output(0, f"[    0.000000] Linux version 6.1.0\n{text}", ""), None)
    events = [{**one, "last_date": "2026-11-28T06:00Z"} for one in found["events"]]
    return {**found, "events": events}


def gpu(number: int, address: str, **more: Any) -> dict[str, Any]:
    return {
        **{"index": number, "uuid": f"GPU-{number}", "name": "a model", "memory_mib": 8192},
        **{"pci_address": address, "minor": number, "persistence_mode": True, "error": None},
        **more,
    }


def machine(*lines: str, devices: tuple[str, str], failure: Any = None, **parts: Any) -> Any:
    """Return a machine with two GPUs, of which the first one works, or none if there is a failure.

    Its driver is the admin's.
    """
    found = done.node(**parts)
    if "pci" not in parts:
        found["pci"] = [*done.bus([FIRST], devices[0]), *done.bus([SECOND], devices[1])]
    found["nvml"] |= {"devices": [] if failure else [gpu(0, FIRST)], "failure": failure}
    found["nvml"] |= {"complete": False, "driver_version": found["driver"]["module_version"]}
    found["ours"]["packages"].pop("nvidia_driver")
    found["ours"]["files"] = []
    found["driver"] |= {"own_modules": [], "own_device_rule": [], "own_pin": []}
    found["kernel_log"] = log(*lines)
    return found


def driver(version: str, flavour: str = "open", **more: Any) -> dict[str, Any]:
    names = ("nvidia-driver-cuda", "nvidia-kernel-dkms", "libcuda1")
    return {
        "packages": dict.fromkeys(names, f"{version}-1"),
        **{"module_version": version, "disk_version": version, "flavour": flavour},
        **more,
    }


def doctor(seen: Any) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return the findings by code, without those about packages, and the steps of the driver."""
    row = doctor_report.row(Node(Host("gpu-1", "10.0.0.7", variables={}), seen))
    found = {one["code"]: dict(one) for one in row["findings"] if one["severity"] != "notice"}
    return found, [one["step"] for one in row["steps"] if one["role"] == "nvidia_driver"]


@pytest.mark.parametrize(
    ("devices", "lines", "more", "words", "remedy"),
    [
        pytest.param(
            ("2bb1", "1bb1"), [LOAD, OPEN.format(SECOND)], {"driver": driver("575.64.03")},
            "is not supported by open nvidia.ko", "these ones cannot share a node",
            id="NVIDIA/open-gpu-kernel-modules#914",
        ),
        pytest.param(
            ("20f1", "20f1"),
            [LOAD, "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n"
             f"               NVRM: BAR1 is 0M @ 0x0 (PCI:{SECOND})",
             f"nvidia: probe of {SECOND} failed with error -1"],
            {}, "BAR1 is 0M @ 0x0", "Above 4G Decoding", id="NVIDIA/gpu-operator#492",
        ),
        pytest.param(
            ("2335", "2335"),
            [LOAD, f"nvidia {SECOND}: Direct firmware load for nvidia/570.172.08/gsp_ga10x.bin"
             " failed with error -4", "NVRM: RmFetchGspRmImages: No firmware image found",
             f"NVRM: GPU {SECOND}: RmInitAdapter failed! (0x61:0x56:1697)"],
            {}, "failed with error -4", "nvidia-persistenced",
            id="NVIDIA/open-gpu-kernel-modules#943",
        ),
        pytest.param(
            ("1eb8", "1eb8"),
            [LOAD, "NVRM: request_mem_region failed for 0M @ 0x0. This can",
             f"nvidia: probe of {SECOND} failed with error -1"],
            {}, "request_mem_region failed", "Above 4G Decoding", id="NVIDIA/gpu-operator#232",
        ),
        pytest.param(
            ("2330", "2330"),
            [LOAD, "NVRM: GPU6 _kgspBootGspRm: unexpected WPR2 already up, cannot proceed",
             f"NVRM: GPU {SECOND}: RmInitAdapter failed! (0x62:0x40:2168)"],
            {}, "unexpected WPR2 already up", "switch it off and on again",
            id="NVIDIA/open-gpu-kernel-modules#1230",
        ),
        pytest.param(
            ("2330", "15f8"), [LOAD], {"driver": driver("595.71.05", "proprietary")},
            "Pascal needs branch 580 or older", "the role chooses one that fits",
            id="a branch that dropped the GPU, without words",
        ),
        pytest.param(
            ("2330", "2330"), [LOAD], {}, "the kernel logged nothing about them",
            "read what `dmesg` has", id="nothing is logged",
        ),
        pytest.param(
            ("2330", "2330"), [LOAD, FELL_OFF], {}, "Xid 79", REPLACE, id="fell off the bus"
        ),
    ],
)  # fmt: skip
def test_one_gpu_is_missing(
    devices: tuple[str, str], lines: list[str], more: Any, words: str, remedy: str
) -> None:
    found, _steps = doctor(machine(*lines, devices=devices, **more))
    one = found["NVML_COUNT_DIFFERS"]
    assert f"missing: {SECOND}" in one["message"]
    assert words in one["message"]
    assert remedy in one["remedy"]
    assert (REPLACE in one["remedy"]) is (FELL_OFF in lines)


UNLOADED = {"kernel": {"modules": []}}
NEXT = {"release": "6.1.0-138-amd64", "headers": True, "module": False}
UNFINISHED = {"nvidia-kernel-dkms": {"version": "570.133.07-1", "state": "half-configured"}}
ENROLLED = {
    **{"private_key": "/var/lib/dkms/mok.key", "certificate": "/var/lib/dkms/mok.pub"},
    **{"missing_key": None, "missing_certificate": None, "state": "enrolled", "error": None},
}
MIXED = {
    **driver("520.56.06", "proprietary"),
    "packages": {"nvidia-kernel-dkms": "520.56.06-1", "libcuda1": "525.85.12-1"},
}
GPL = "ERROR: modpost: GPL-incompatible module nvidia.ko uses GPL-only symbol '__rcu_read_lock'"


def unbuilt(error: str) -> dict[str, Any]:
    log = "/var/lib/dkms/nvidia/525.125.06/build/make.log"
    build = {"built": False, "kernels": [], "unfinished": [], "log": log, "failed": None}
    state = {**build, "error": error}
    builds = {"nvidia/525.125.06": state}
    dkms = {**state, "sources": [*builds], "addable": [], "builds": builds}
    return {**driver("525.125.06"), "module_version": None, "disk_version": None, "dkms": dkms}


@pytest.mark.parametrize(
    ("failure", "lines", "parts", "words", "remedies"),
    [
        pytest.param(
            NO_DRIVER, [LOAD, f"NVRM: GPU {FIRST} is already bound to nouveau."],
            {"driver": driver("535.183.01"), "pci": done.bus([FIRST], "2204", driver="nouveau"),
             "kernel": {"modules": ["nouveau"]}},
            "already bound to nouveau", ["blacklist nouveau", "update-initramfs -u -k all"],
            id="negativo17/nvidia-driver#73",
        ),
        pytest.param(
            NO_DEVICES, [LOAD, OPEN.format(FIRST)],
            {"driver": driver("580.178.04"), "pci": done.bus([FIRST], "1bb3")},
            "Pascal needs the proprietary kernel module", ["the role chooses one that fits"],
            id="zzzhouuu/truenas-nvidia-drivers#20",
        ),
        pytest.param(
            NO_DRIVER,
            [LOAD, "NVRM: The NVIDIA Tesla P100-PCIE-16GB GPU installed in this system is\n"
             "               NVRM:  supported through the NVIDIA 580.xx Legacy drivers. Please"],
            {"driver": driver("595.71.05"), "pci": done.bus([FIRST], "15f8")},
            "supported through the NVIDIA 580.xx Legacy", ["the role chooses one that fits"],
            id="anomixer/proxmox-vgpu-installer#29",
        ),
        pytest.param(
            HANGING, [LOAD, "NVRM: Xid (PCI:0000:03:00): 45, pid=1, name=x, Ch 0000000a"],
            {"driver": driver("535.129.03")}, "did not end within 30 s",
            ["do not start nvidia-smi again", "stat", "reboot"], id="leptonai/gpud#117",
        ),
        pytest.param(
            MISMATCH, [],
            {"driver": {**driver("570.133.07"), "module_version": "570.124.06",
                        "next_kernel": NEXT},
             "package_manager": {"unfinished": UNFINISHED}},
            "module 570.124.06 is loaded, and 570.133.07 is installed",
            ["`dpkg --configure -a`, then build the module for kernel 6.1.0-138-amd64",
             "only then drain the node and reboot it"],
            id="a mismatch, and the next kernel has no module",
        ),
        pytest.param(
            MISMATCH, [], {"driver": MIXED}, "nvidia-kernel-dkms: 520.56.06; libcuda1: 525.85.12",
            ["bring all packages of the driver to one version", "a reboot alone changes nothing"],
            id="illinois-scicomp/machine-shop-maintenance#70",
        ),
        pytest.param(
            MISMATCH,
            [f"nvidia {FIRST}: Direct firmware load for nvidia/580.95.05/gsp_ga10x.bin failed with"
             " error -2"],
            {"driver": {**driver("580.105.08"), "module_version": "580.95.05"}},
            "module 580.95.05 is loaded, and 580.105.08 is installed",
            ["rebuild the initial ramdisk, which can load the former one"],
            id="negativo17/nvidia-driver#43",
        ),
        pytest.param(
            NO_DRIVER, [], {"driver": unbuilt(GPL), **UNLOADED}, "uses GPL-only symbol",
            ["install a newer driver, or boot the former kernel"], id="NVIDIA/gpu-operator#729",
        ),
        pytest.param(
            NO_DRIVER, [],
            {"driver": unbuilt("cc: error: unrecognized command-line option '-ftrivial-x'"),
             **UNLOADED},
            "unrecognized command-line option", ["install gcc-12, which built the kernel"],
            id="elementary/settings-system#333",
        ),
        pytest.param(
            NO_DRIVER, ["Loading of module with unavailable key is rejected"],
            {"driver": {**driver("525.85.05"), "module_version": None, "signing": ENROLLED},
             "secure_boot": True, **UNLOADED},
            "Secure Boot is on, and the module is not loaded",
            ["modinfo -F signer", "shim", "dkms remove"],
            id="acidanthera/bugtracker#2237",
        ),
    ],
)  # fmt: skip
def test_no_gpu_is_shown(
    failure: Any, lines: list[str], parts: Any, words: str, remedies: list[str]
) -> None:
    seen = machine(*lines, devices=("2204", "2204"), failure=failure, **parts)
    found, steps = doctor(seen)
    broken = found["DRIVER_BROKEN"]
    assert steps == []
    assert words in broken["message"]
    assert all(one in broken["remedy"] for one in remedies)
    assert REPLACE not in broken["remedy"] + found["NVML_UNAVAILABLE"]["remedy"]
    # Nothing about the installation that does not take place, such as DRIVER_PARTS_MIXED.
    assert {*found} <= {"DRIVER_BROKEN", "NVML_UNAVAILABLE", "PACKAGES_UNFINISHED"}


def virgin(*lines: str, **parts: Any) -> Any:
    """Return a node without a driver."""
    seen = done.virgin(**parts)
    seen["kernel_log"] = log(*lines)
    return seen


def test_nova_core_is_blocked_like_nouveau() -> None:
    seen = virgin(pci=done.bus([FIRST], "26b9", driver="NovaCore"))
    found, _steps = doctor(seen)
    assert (
        "nova_core is loaded, and its removal needs a reboot" in found["NOUVEAU_LOADED"]["message"]
    )


@pytest.mark.parametrize("holder", ["vfio-pci", "nvgrace-gpu-vfio-pci", "pci-stub", "something"])
def test_what_holds_all_gpus_is_named_and_nothing_is_planned(holder: str) -> None:
    found, steps = doctor(virgin(pci=done.bus([FIRST], "2208", driver=holder)))
    assert ([*found], steps) == (["GPU_PASSED_THROUGH"], [])
    assert f"{FIRST} ({holder})" in found["GPU_PASSED_THROUGH"]["message"]


def test_a_gpu_of_virtual_machines_is_not_missing() -> None:
    pci = [*done.bus([FIRST], "2235"), *done.bus([SECOND], "2235", driver="vfio-pci")]
    found, _steps = doctor(machine(LOAD, devices=("2235", "2235"), pci=pci))
    assert [*found] == ["GPU_PASSED_THROUGH"]


CONFIDENTIAL = (
    "NVRM: GPU0 confComputeConstructEngine_IMPL: CPU does not support confidential compute."
)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param(
            virgin(kernel={"release": "6.6.87.2-microsoft-standard-WSL2"}, pci=[]),
            "Windows Subsystem for Linux", id="WSL",
        ),
        pytest.param(
            virgin(kernel={"modules": ["nvidia", "nvidia_vgpu_vfio"]}),
            "a host of virtual GPUs", id="bigstack-oss/cubecos#312",
        ),
        pytest.param(
            virgin(LOAD, RELEASE.format(FIRST, "580.178.04"), pci=done.bus([FIRST], "26b9")),
            "a virtual GPU (vGPU), or one in confidential computing", id="by the planned driver",
        ),
        pytest.param(
            virgin(LOAD, CONFIDENTIAL, f"NVRM: GPU {FIRST}: RmInitAdapter failed! (0x22:0x38:878)"),
            "confidential computing mode, outside", id="confidential computing",
        ),
    ],
)  # fmt: skip
def test_machines_that_are_not_served(seen: Any, words: str) -> None:
    found, steps = doctor(seen)
    assert words in found["MACHINE_UNSUPPORTED"]["message"]
    assert steps == []
    assert {*found} <= {"MACHINE_UNSUPPORTED", "NVML_UNAVAILABLE"}


@pytest.mark.parametrize(("device", "version"), [("2901", "535.1.2"), ("2bb5", "570.86.15")])
def test_a_driver_that_is_too_old_for_the_gpu_is_no_virtual_gpu(device: str, version: str) -> None:
    """A model can be newer than the first drivers for its generation."""
    seen = virgin(LOAD, RELEASE.format(FIRST, version), pci=done.bus([FIRST], device))
    assert "MACHINE_UNSUPPORTED" not in doctor(seen)[0]


@pytest.mark.parametrize("mode", ["Pass-Through", "None"])
@pytest.mark.parametrize("words", [None, "Unlicensed"])
def test_a_virtual_machine_with_whole_gpus_is_like_any_other(mode: str, words: Any) -> None:
    seen = done.node()
    seen["health"]["gpus"] = [smi_xml.parsed(FIRST, virtualization=mode, license=words)]
    assert {"MACHINE_UNSUPPORTED", "VGPU_UNLICENSED"}.isdisjoint(doctor(seen)[0])


@pytest.mark.parametrize(
    ("license_", "codes"), [("Licensed", []), ("Unlicensed (Restricted)", ["VGPU_UNLICENSED"])]
)
def test_a_virtual_gpu_keeps_its_driver(license_: str, codes: list[str]) -> None:
    seen = machine(LOAD, devices=("1db6", "1db6"), driver=driver("450.102.04", "proprietary"))
    seen["pci"] = done.bus([FIRST], "1db6")
    seen["nvml"] |= {"devices": [gpu(0, FIRST, name="GRID V100D-8C")], "complete": True}
    seen["health"]["gpus"] = [
        smi_xml.parsed(FIRST, "volta", virtualization="VGPU", license=license_)
    ]
    node = Node(Host("gpu-1", "10.0.0.7", variables={"nvidia_driver_switch_ok": True}), seen)
    row = doctor_report.row(node)
    assert [one["code"] for one in row["findings"] if one["severity"] != "notice"] == codes
    assert "DRIVER_KEPT" not in [one["code"] for one in row["findings"]]
    assert [one for one in row["steps"] if one["role"] == "nvidia_driver"] == []
    machine_ = row["machine"]
    assert machine_ is not None
    assert machine_["gpus"][0]["name"] == "GRID V100D-8C"
