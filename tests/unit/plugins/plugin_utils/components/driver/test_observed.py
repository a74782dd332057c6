# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import time

import pytest

from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import (
    parse_scene,
    plant,
    recording,
)


@pytest.mark.parametrize(
    ("paths", "built", "log"),
    [
        pytest.param([], None, None, id="no DKMS"),
        pytest.param(["source/dkms.conf"], False, None, id="not built"),
        pytest.param(
            ["source/dkms.conf", "6.1.0-25-amd64/x86_64/module/nvidia.ko", "build/make.log"],
            False,
            "/var/lib/dkms/nvidia/580.178.04/build/make.log",
            id="failed, for this kernel",
        ),
        pytest.param(
            ["source/dkms.conf", "6.1.0-26-amd64/x86_64/module/nvidia-current.ko.xz"],
            True,
            None,
            id="built",
        ),
    ],
)
@pytest.mark.parametrize("storage", [False, True], ids=["alone", "with GPUDirect Storage"])
def test_what_dkms_has_built(observe, tmp_path, paths, built, log, storage):
    """Planted after dkms(8). nvidia-fs is another module, in any state."""
    texts = {f"/var/lib/dkms/nvidia/580.178.04/{path}": "" for path in paths}
    if storage:
        other = "/var/lib/dkms/nvidia-fs/2.25.7"
        module = "6.1.0-26-amd64/x86_64/module/nvidia-fs.ko"
        for path in ("source/dkms.conf", "build/make.log", module):
            texts[f"{other}/{path}"] = ""
    plant(tmp_path, {**texts, "/proc/sys/kernel/osrelease": "6.1.0-26-amd64\n"})
    sources = ["nvidia/580.178.04"] if paths else []
    expected = {"built": built, "log": log, "sources": sources}
    assert observe(Programs({}))["driver"]["dkms"] == expected


@pytest.mark.parametrize(
    ("written_s", "outdated"), [(30, True), (90, False), (-3600, False), (None, None)]
)
def test_an_initial_ramdisk_older_than_the_blacklist_is_outdated(
    observe, tmp_path, written_s, outdated
):
    blacklist, ramdisk = "/etc/modprobe.d/nouveau.conf", "/boot/initrd.img-6.1"
    plant(tmp_path, {blacklist: "blacklist nouveau\n", "/proc/sys/kernel/osrelease": "6.1\n"})
    if written_s:
        plant(tmp_path, {ramdisk: ""})
        os.utime(tmp_path / blacklist[1:], times=(time.time() - written_s,) * 2)
        os.utime(tmp_path / ramdisk[1:], times=(time.time() - 60,) * 2)
    assert observe(Programs({}))["driver"]["initramfs_outdated"] is outdated


def test_debians_module_has_another_name(observe, tmp_path):
    """Behind alternatives; `modinfo nvidia` fails there (kmod 30 to 34)."""
    line = "install nvidia modprobe -i nvidia-current-open $CMDLINE_OPTS\n"
    plant(tmp_path, {"/etc/nvidia/current-open/nvidia-modprobe.conf": line})
    (tmp_path / "etc/modprobe.d").mkdir()
    (tmp_path / "etc/modprobe.d/nvidia.conf").symlink_to(
        "../nvidia/current-open/nvidia-modprobe.conf"
    )
    programs = Programs(
        {
            "modinfo -F version nvidia-current-open": (0, "550.163.01\n", ""),
            "modinfo": (1, "", "modinfo: ERROR: Module nvidia not found.\n"),
        }
    )
    assert observe(programs)["driver"]["disk_version"] == "550.163.01"
    assert len([line for line in programs.asked if line.startswith("modinfo")]) == 1


def test_programs_and_libraries_that_were_removed_or_locked(observe, tmp_path):
    ml = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    runtime = "/usr/bin/nvidia-container-runtime"
    plant(tmp_path, {ml: "a library", runtime: "a program", "/usr/bin/nvidia-smi": "a program"})
    (tmp_path / "usr/bin/nvidia-smi").chmod(0o755)
    node = observe(Programs({}))
    assert node["driver"]["libraries"] == {"libnvidia-ml.so.1": ml, "libcuda.so.1": None}
    assert node["driver"]["programs"]["nvidia-smi"]["executable"] is True
    assert node["toolkit"]["programs"]["nvidia-container-runtime"] == {
        "path": runtime,
        "exists": True,
        "executable": False,
    }
    assert node["toolkit"]["programs"]["nvidia-ctk"]["exists"] is False


def test_a_hanging_driver_is_named(observe):
    failure = observe(Programs({"nvidia-smi": (124, "", "")}))["nvml"]["failure"]
    assert failure["code"] == "timeout"


def test_the_list_is_asked_where_a_gpu_cannot_be_reached(observe, tmp_path):
    """And not else: on a machine without persistence mode it takes seconds."""
    plant(tmp_path, parse_scene(recording("nodes/p100.txt")))
    gone = "Unable to determine the device handle for GPU1: 0000:82:00.0: Unknown Error\n"
    uuid = "GPU-6b7c1c5f-9d3e-5d0a-8f0b-5a3d1f1f2c01"
    listing = f"GPU 0: Tesla P100-PCIE-16GB (UUID: {uuid})\n"
    for answer, asked in (
        ((255, gone, ""), 2),
        ((0, recording("nvidia_smi/query-p100x2.txt"), ""), 1),
    ):
        answers = {"nvidia-smi --query": answer, "nvidia-smi -L": (255, listing, gone)}
        programs = Programs(answers)
        nvml = observe(programs)["nvml"]
        assert len(programs.asked) == asked
        assert [gpu["index"] for gpu in nvml["devices"]] == [0, 1]
        assert [gpu["pci_address"] for gpu in nvml["devices"]] == ["0000:03:00.0", "0000:82:00.0"]
        assert nvml["devices"][0]["uuid"] == uuid
        assert nvml["complete"] is (asked == 1)
