# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import nvidia_driver
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import device_files
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import (
    parse_scene,
    plant,
    recording,
)

RECORDED = Path(__file__).parents[5] / "recorded"
LOG = "/var/lib/dkms/nvidia/580.178.04/build/make.log"
OLDER = "6.1.0-25-amd64"
NOTHING = {
    **{"built": None, "kernels": [], "unfinished": []},
    **{"log": None, "failed": None, "error": None},
}
FAILED = recording("dkms/make-log-gcc-11.txt")
WORDS = "cc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'"


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        pytest.param({}, {}, id="no DKMS"),
        pytest.param({"source/dkms.conf": ""}, {"built": False}, id="not built"),
        pytest.param(
            {"source/dkms.conf": "", f"{OLDER}/x86_64/module/nvidia.ko": "", "build/make.log": ""},
            {"built": False, "kernels": [OLDER], "log": LOG},
            id="failed without words",
        ),
        pytest.param(
            {"source/dkms.conf": "", "build/make.log": FAILED},
            {"built": False, "log": LOG, "failed": "6.8.0-60-generic", "error": WORDS},
            id="failed",
        ),
        pytest.param(
            {"source/dkms.conf": "", "6.1.0-26-amd64/x86_64/module/nvidia-current.ko.xz": ""},
            {"built": True, "kernels": ["6.1.0-26-amd64"]},
            id="built",
        ),
    ],
)
@pytest.mark.parametrize("storage", [False, True], ids=["alone", "with GPUDirect Storage"])
def test_what_dkms_has_built(observe, tmp_path, paths, expected, storage):
    """Planted after dkms(8). nvidia-fs is another module, in any state."""
    texts = {f"/var/lib/dkms/nvidia/580.178.04/{path}": text for path, text in paths.items()}
    if storage:
        other = "/var/lib/dkms/nvidia-fs/2.25.7"
        module = "6.1.0-26-amd64/x86_64/module/nvidia-fs.ko"
        for path in ("source/dkms.conf", module, "build/make.log"):
            texts[f"{other}/{path}"] = "error: of another module\n"
    plant(tmp_path, {**texts, "/proc/sys/kernel/osrelease": "6.1.0-26-amd64\n"})
    builds = {"nvidia/580.178.04": {**NOTHING, **expected}} if paths else {}
    together = {**NOTHING, **expected, "sources": [*builds], "addable": [], "builds": builds}
    assert observe(Programs({}))["driver"]["dkms"] == together


def test_source_that_dkms_has_lost(observe, tmp_path):
    plant(tmp_path, {"/usr/src/nvidia-580.178.04/dkms.conf": "PACKAGE_NAME=nvidia\n"})
    found = observe(Programs({}))["driver"]["dkms"]
    assert (found["built"], found["addable"]) == (None, ["nvidia/580.178.04"])


@pytest.mark.parametrize(("rc", "expected"), [(0, True), (1, False), (None, None)])
@pytest.mark.parametrize("prefix", ["nvidia", "nvidia-current-open"])
def test_whether_nvidia_uvm_can_be_read(observe, tmp_path, prefix, rc, expected):
    """The others of the driver have the same prefix as the module nvidia."""
    plant(tmp_path, {"/etc/modprobe.d/a.conf": f"install nvidia modprobe -i {prefix}\n"})
    answers = {f"modinfo -F version {prefix}-uvm": (rc, "", "")}
    programs = Programs({**answers, "modinfo": (0, "550.163.01\n", "")})
    found = observe(programs)["driver"]
    assert (found["disk_version"], found["uvm_readable"]) == ("550.163.01", expected)


def test_what_dkms_has_of_two_versions(observe, tmp_path):
    running = "6.1.0-26-amd64"
    old, new = "nvidia/535.309.01", "nvidia/580.178.04"
    paths = {
        f"{old}/source/dkms.conf": "",
        f"{old}/{running}/x86_64/module/nvidia.ko": "",
        f"{old}/build/make.log": "x.c:1: error: of the old driver\n",
        f"{new}/source/dkms.conf": "",
        f"{new}/build/make.log": FAILED,
    }
    texts = {f"/var/lib/dkms/{path}": text for path, text in paths.items()}
    plant(tmp_path, {**texts, "/proc/sys/kernel/osrelease": f"{running}\n"})
    found = observe(Programs({}))["driver"]["dkms"]
    assert (found["sources"], found["built"]) == ([old, new], True)
    log = f"/var/lib/dkms/{old}/build/make.log"
    error = "x.c:1: error: of the old driver"
    expected = {**NOTHING, "built": True, "kernels": [running], "log": log, "error": error}
    assert found["builds"][old] == expected
    failed = {"log": LOG, "failed": "6.8.0-60-generic", "error": WORDS}
    assert found["builds"][new] == {**NOTHING, "built": False, **failed}


@pytest.mark.parametrize(
    ("name", "text"),
    [("nouveau", "blacklist nouveau\n"), ("metal-gpu-parameters", "options nvidia NVreg_A=1\n")],
)
@pytest.mark.parametrize(
    ("written_s", "outdated"), [(30, True), (90, False), (-3600, False), (None, None)]
)
def test_an_initial_ramdisk_older_than_the_module_configuration_is_outdated(
    observe, tmp_path, written_s, outdated, name, text
):
    blacklist, ramdisk = f"/etc/modprobe.d/{name}.conf", "/boot/initrd.img-6.1"
    plant(tmp_path, {blacklist: text, "/proc/sys/kernel/osrelease": "6.1\n"})
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
    asked = [line for line in programs.asked if line.startswith("modinfo")]
    name = "modinfo -F version nvidia-current-open"
    assert asked == [name, f"{name}-uvm"]


def test_what_is_no_version_is_none(observe, tmp_path):
    plant(tmp_path, {"/sys/module/nvidia/version": '[runtime]\nmode = "auto"\n'})
    found = observe(Programs({"modinfo": (0, "Killed\n", "")}))["driver"]
    assert (found["module_version"], found["disk_version"]) == (None, None)


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


RUNNING, NEWER = "6.1.0-26-amd64", "6.1.0-28-amd64"
INDEX = "base-files | 12.4 | http://x bookworm/main amd64 Packages\n"


@pytest.mark.parametrize("has_driver", [False, True])
def test_the_kernel_that_boots_next_and_its_headers(observe, tmp_path, has_driver):
    plant(
        tmp_path,
        {
            "/proc/sys/kernel/osrelease": f"{RUNNING}\n",
            f"/boot/vmlinuz-{RUNNING}": "",
            f"/boot/vmlinuz-{NEWER}": "",
            f"/lib/modules/{NEWER}/build/Makefile": "",
            f"/lib/modules/{NEWER}/modules.dep": "updates/dkms/nvidia.ko:\n",
        },
    )
    smi = (0, recording("nvidia_smi/query-p100x2.txt"), "") if has_driver else (9, "", "")
    programs = Programs({"apt-cache": (0, INDEX, ""), "nvidia-smi": smi})
    driver = observe(programs)["driver"]
    assert driver["next_kernel"] == {"release": NEWER, "headers": True, "module": True}
    # Headers are necessary only for a module that is built.
    asked = [line for line in programs.asked if line.startswith("apt-cache")]
    # An observation leaves apt's cache as it is.
    start = "apt-cache -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= madison"
    expected = [] if has_driver else [f"{start} linux-headers-{RUNNING} base-files"]
    assert (asked, driver["headers_available"]) == (expected, None if has_driver else [])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param((0, "580.178.04\n", ""), True, id="readable"),
        pytest.param(
            (1, "", "modinfo: ERROR: could not get modinfo from 'nvidia': Exec format error"),
            False,
            id="cut off",
        ),
        pytest.param((127, "", "modinfo: not found"), True, id="unknown"),
    ],
)
def test_a_module_of_the_next_kernel_that_cannot_be_read_is_none(
    observe, tmp_path, answer, expected
):
    """DKMS 3.0.10 installs an empty module if the disk is full, and calls it installed."""
    dep = f"/lib/modules/{NEWER}/modules.dep"
    images = {f"/boot/vmlinuz-{one}": "" for one in (RUNNING, NEWER)}
    texts = {"/proc/sys/kernel/osrelease": f"{RUNNING}\n", dep: "updates/dkms/nvidia.ko:\n"}
    plant(tmp_path, {**texts, **images})
    programs = Programs({f"modinfo -k {NEWER} -F version nvidia": answer, "modinfo": (1, "", "")})
    assert observe(programs)["driver"]["next_kernel"]["module"] is expected


@pytest.mark.parametrize(
    ("after_boot_s", "files", "expected"),
    [
        pytest.param(-60, "updates/dkms/nvidia.ko:\n", True, id="before the boot"),
        pytest.param(60, "updates/dkms/nvidia.ko:\n", False, id="since the boot"),
        pytest.param(-60, "", False, id="no module"),
    ],
)
def test_the_last_boot_skipped_the_newest_kernel(observe, tmp_path, after_boot_s, files, expected):
    dep = f"/lib/modules/{NEWER}/modules.dep"
    images = {f"/boot/vmlinuz-{one}": "" for one in (RUNNING, NEWER)}
    plant(tmp_path, {"/proc/sys/kernel/osrelease": f"{RUNNING}\n", dep: files, **images})
    written = time.time() - time.monotonic() + after_boot_s
    os.utime(tmp_path / dep.lstrip("/"), (written, written))
    assert observe(Programs({}))["driver"]["next_kernel_skipped"] is expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(["/usr/bin/dracut"], "/usr/bin/dracut", id="dracut"),
        pytest.param(
            ["/usr/bin/dracut", "/usr/sbin/update-initramfs"],
            "/usr/sbin/update-initramfs",
            id="both, as with dracut-core beside initramfs-tools",
        ),
        pytest.param([], None, id="neither"),
    ],
)
def test_what_rebuilds_the_initial_ramdisk(observe, tmp_path, files, expected):
    plant(tmp_path, dict.fromkeys(files, ""))
    for path in files:
        (tmp_path / path[1:]).chmod(0o755)
    assert observe(Programs({}))["driver"]["initramfs_program"] == expected


def test_recorded_images_are_those_that_count():
    record = yaml.safe_load((RECORDED / "ramdisk.yml").read_text())
    images = {row["image"] for row in record["programs"] if row["image"]}
    known = {one.format(release="RELEASE") for one in nvidia_driver.INITIAL_RAMDISKS}
    assert images <= known
    assert {"dracut"} <= {*nvidia_driver.RAMDISK_PROGRAMS}


def test_room_for_a_copy_of_the_largest_ramdisk(observe, tmp_path):
    assert observe(Programs({}))["driver"]["ramdisk_space"] is None
    plant(tmp_path, {"/boot/initrd.img-6.1": "123", "/boot/initramfs-5.14.img": "12345"})
    # Nothing rebuilds these: the one of Anaconda has all modules, and the other is that of kdump.
    plant(tmp_path, {"/boot/initramfs-0-rescue-0123456789abcdef.img": "1234567"})
    plant(tmp_path, {"/boot/initramfs-5.14kdump.img": "123456"})
    found = observe(Programs({}))["driver"]["ramdisk_space"]
    assert found["needed"] == 5
    assert found["free"] > 0


def test_every_initial_ramdisk_counts(observe, tmp_path):
    plant(tmp_path, {"/etc/modprobe.d/nouveau.conf": "blacklist nouveau\n"})
    plant(tmp_path, {"/proc/sys/kernel/osrelease": f"{RUNNING}\n"})
    for release, written_s in ((RUNNING, 30), (NEWER, 90)):
        plant(tmp_path, {f"/boot/vmlinuz-{release}": "", f"/boot/initramfs-{release}.img": ""})
        path = tmp_path / f"boot/initramfs-{release}.img"
        os.utime(path, times=(time.time() - written_s,) * 2)
    os.utime(tmp_path / "etc/modprobe.d/nouveau.conf", times=(time.time() - 60,) * 2)
    assert observe(Programs({}))["driver"]["initramfs_outdated"] is True


@pytest.mark.parametrize("flag", ["\x00", "\x01"], ids=["off", "on"])
def test_the_key_is_asked_only_with_secure_boot(observe, tmp_path, flag):
    key = "/var/lib/shim-signed/mok/MOK.der"
    plant(
        tmp_path,
        {
            "/etc/os-release": "ID=ubuntu\n",
            "/sys/firmware/efi/efivars/SecureBoot-8be4df61": f"\x06\x00\x00\x00{flag}",
            key: "",
            "/var/lib/shim-signed/mok/MOK.priv": "",
            "/var/lib/dkms/mok.pub": "",
        },
    )
    programs = Programs({"mokutil": (1, f"{key} is already enrolled\n", "")})
    found = observe(programs)["driver"]["signing"]
    if flag == "\x00":
        assert (found, programs.asked) == (None, [])
    else:
        assert found == {
            "certificate": key,
            "state": "enrolled",
            "error": None,
            "private_key": "/var/lib/shim-signed/mok/MOK.priv",
            "missing_key": None,
            "missing_certificate": None,
        }
        assert programs.asked == [f"mokutil --test-key {key}"]


def test_the_key_of_another_dkms_does_not_count_on_ubuntu(observe, tmp_path):
    """Without MOK.der, DKMS creates it there, and never signs with /var/lib/dkms/mok.key."""
    texts = {"/etc/os-release": "ID=ubuntu\n", "/var/lib/dkms/mok.pub": ""}
    variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61"
    plant(tmp_path, {variable: "\x06\x00\x00\x00\x01", **texts})
    programs = Programs({"mokutil": (1, "/var/lib/dkms/mok.pub is already enrolled\n", "")})
    found = observe(programs)["driver"]["signing"]
    assert found == {
        "certificate": None,
        "state": "missing",
        "error": None,
        "private_key": "/var/lib/shim-signed/mok/MOK.priv",
        "missing_key": "/var/lib/shim-signed/mok/MOK.priv",
        "missing_certificate": "/var/lib/shim-signed/mok/MOK.der",
    }


OF_DKMS = ("/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub")
TOKEN = 'mok_signing_key="pkcs11:a;pin-value=b"'


@pytest.mark.parametrize(
    ("settings", "files", "private_key", "missing"),
    [
        pytest.param("", OF_DKMS, OF_DKMS[0], (None, None), id="both are there"),
        pytest.param("", OF_DKMS[:1], OF_DKMS[0], (None, OF_DKMS[1]), id="only the key"),
        pytest.param("", OF_DKMS[1:], OF_DKMS[0], (OF_DKMS[0], None), id="only the certificate"),
        pytest.param("", (), OF_DKMS[0], OF_DKMS, id="neither"),
        pytest.param(
            "mok_certificate=/c", OF_DKMS, OF_DKMS[0], (None, "/c"), id="certificate of the admin"
        ),
        pytest.param(
            "mok_signing_key=/k", OF_DKMS, "/k", ("/k", None), id="no private key of the admin"
        ),
        pytest.param(
            "mok_signing_key=/k", ("/k",), "/k", (None, OF_DKMS[1]), id="private key of the admin"
        ),
        pytest.param(
            "mok_signing_key=/k\nmok_certificate=/c", OF_DKMS, "/k", ("/k", "/c"), id="no own pair"
        ),
        pytest.param(TOKEN, OF_DKMS[1:], TOKEN[:26] + "…", (None, None), id="in a token"),
        pytest.param(TOKEN, (), TOKEN[:26] + "…", (None, OF_DKMS[1]), id="only in a token"),
        pytest.param(
            "mok_signing_key=$x/k", (), "mok_signing_key=$x/k", (None, None), id="not understood"
        ),
    ],
)
def test_which_of_the_two_files_is_missing(
    observe, tmp_path, settings, files, private_key, missing
):
    """The content of the private key is never asked for."""
    variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61"
    texts = {"/etc/os-release": "ID=debian\n", "/etc/dkms/framework.conf": f"{settings}\n"}
    texts |= dict.fromkeys(files, "secret")
    plant(tmp_path, {variable: "\x06\x00\x00\x00\x01", **texts})
    found = observe(Programs({"mokutil": (1, "x is already enrolled\n", "")}))
    key = found["driver"]["signing"]
    assert key["private_key"] == private_key
    assert (key["missing_key"], key["missing_certificate"]) == missing
    assert not any(secret in str(found) for secret in ("secret", "pin-value"))


@pytest.mark.parametrize("line", ["mok_certificate=$x/mine.pub", "mok_signing_key=$x/mine.key"])
def test_a_setting_that_is_not_understood_is_unknown(observe, tmp_path, line):
    variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61"
    texts = {"/etc/dkms/framework.conf": f"{line}\n", "/var/lib/dkms/mok.pub": ""}
    plant(tmp_path, {variable: "\x06\x00\x00\x00\x01", **texts})
    programs = Programs({"mokutil": (1, "is already enrolled\n", "")})
    found = observe(programs)["driver"]["signing"]
    assert (found["certificate"], found["state"], programs.asked) == (line, "unknown", [])
    assert line in found["error"]


@pytest.mark.parametrize(
    ("texts", "file"),
    [
        pytest.param({}, None, id="no unit"),
        pytest.param({"/usr/lib/systemd/system/{}": "on"}, None, id="NVIDIA's"),
        pytest.param(
            {"/usr/lib/systemd/system/{}": "off"}, "/usr/lib/systemd/system/{}", id="Ubuntu's"
        ),
        pytest.param(
            {"/usr/lib/systemd/system/{}": "off", "/etc/systemd/system/{}.d/a.conf": "on"},
            None,
            id="Ubuntu's, and the admin turned it on",
        ),
        pytest.param(
            {"/usr/lib/systemd/system/{}": "on", "/etc/systemd/system/{}.d/a.conf": "off"},
            "/etc/systemd/system/{}.d/a.conf",
            id="the admin turned it off",
        ),
    ],
)
def test_what_turns_persistence_mode_off(observe, tmp_path, texts, file):
    unit, start = "nvidia-persistenced.service", "ExecStart=/usr/bin/nvidia-persistenced --user x"
    options = {"on": "--verbose", "off": "--no-persistence-mode --verbose"}
    plant(
        tmp_path,
        {
            path.format(unit): f"[Service]\nExecStart=\n{start} {options[mode]}\n"
            for path, mode in texts.items()
        },
    )
    expected = file.format(unit) if file else None
    assert observe(Programs({}))["driver"]["persistence_off"] == expected


@pytest.mark.parametrize("around", ["", "vfio\n"], ids=["only ours", "lines of the admin around"])
@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/etc/modules-load.d/metal-gpu.conf", "own_modules"),
        ("/etc/modprobe.d/metal-gpu-parameters.conf", "own_parameters"),
        ("/etc/apt/preferences.d/metal-gpu-nvidia-driver.pref", "own_pin"),
        ("/etc/udev/rules.d/70-metal-gpu-device-files.rules", "own_device_rule"),
    ],
)
def test_only_our_block_of_a_file_is_ours(observe, tmp_path, path, key, around):
    """Otherwise the role would write its block again in each run, and still see the lines."""
    mark = "managed by Ansible, role metal.gpu.nvidia_driver"
    text = f"{around}# BEGIN {mark}\nnvidia_uvm\n# END {mark}\n{around}"
    plant(tmp_path, {path: text})
    assert observe(Programs({}))["driver"][key] == ["nvidia_uvm"]


def test_rule_of_ours_and_numbers_of_the_driver(observe, tmp_path):
    mark = "managed by Ansible, role metal.gpu.nvidia_driver"
    block = device_files.RULE_FILE["block"]
    plant(
        tmp_path,
        {
            "/etc/udev/rules.d/70-metal-gpu-device-files.rules": (
                f"# of the admin\n# BEGIN {mark}\n{block}# END {mark}\n"
            ),
            "/proc/devices": "Character devices:\n  1 mem\n195 nvidia\n509 nvidia-uvm\n",
        },
    )
    (tmp_path / "dev/nvidia-uvm").mkdir(parents=True)
    node = observe(Programs({}))
    assert node["driver"]["own_device_rule"] == block.splitlines()
    assert node["device_majors"] == {"nvidia": 195, "nvidia-uvm": 509}
    assert node["device_obstacles"] == [{"path": "/dev/nvidia-uvm", "type": "directory"}]


def test_parameters_of_the_module_and_of_our_file(observe, tmp_path):
    mark = "managed by Ansible, role metal.gpu.nvidia_driver"
    plant(
        tmp_path,
        {
            "/proc/driver/nvidia/params": 'EnableStreamMemOPs: 1\nRegistryDwords: "A=1;B=2"\n',
            "/etc/modprobe.d/metal-gpu-parameters.conf": (
                f"# BEGIN {mark}\noptions nvidia NVreg_EnableStreamMemOPs=1\n# END {mark}\n"
            ),
            "/etc/modules-load.d/metal-gpu.conf": "nvidia-peermem\n",  # of the admin
        },
    )
    driver = observe(Programs({}))["driver"]
    assert driver["parameters"] == {"EnableStreamMemOPs": "1", "RegistryDwords": "A=1;B=2"}
    assert driver["own_parameters"] == ["options nvidia NVreg_EnableStreamMemOPs=1"]
    assert (driver["modules_load"], driver["own_modules"]) == (["nvidia_peermem"], [])
    assert driver["parameters_are_new"] is True


@pytest.mark.parametrize(
    ("blocked", "has_nova", "expected"),
    [
        ("", False, ["nouveau"]),
        ("blacklist nouveau\n", False, []),
        ("blacklist nouveau\n", True, ["nova_core"]),
        ("blacklist nova_core\nblacklist nouveau\n", True, []),
    ],
)
def test_drivers_of_the_kernel_that_nothing_blocks(observe, tmp_path, blocked, has_nova, expected):
    """A kernel that boots next counts, too. Source: beclab/Olares#3963."""
    nova = "kernel/drivers/gpu/nova-core/nova_core.ko.zst:\n" if has_nova else ""
    texts = {"/boot/vmlinuz-7.0.0-31": "", "/lib/modules/7.0.0-31/modules.dep": nova}
    plant(tmp_path, {**texts, "/etc/modprobe.d/a.conf": blocked})
    assert observe(Programs({}))["driver"]["unblocked"] == expected
