# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about the NVIDIA driver, its devices, and the GPUs that it reports."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import cast

from ansible_collections.metal.gpu.plugins.module_utils.observed.gpus import (
    Device,
    Driver,
    DriverPart,
    Nvml,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.probe.components import platform
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.driver import Values
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    device_files,
    dkms,
    kernels,
    nvidia_driver,
    nvidia_smi,
    signing,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.output import failure_text
from ansible_collections.metal.gpu.plugins.module_utils.read.version import parse_version
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw


def observe(raw: Raw) -> DriverPart:
    values = cast(Values, raw.values("driver"))
    return {
        "driver": _driver(raw, values),
        "nvml": _nvml(raw),
        "device_files": values["device_files"],
        "device_obstacles": values["device_obstacles"],
        "device_majors": device_files.parse_majors(raw.texts.get(device_files.DEVICES, "")),
        "device_users": values["device_users"],
    }


def _driver(raw: Raw, values: Values) -> Driver:
    loaded = nvidia_driver.parse_loaded_module(raw.texts.get(nvidia_driver.VERSION, ""))
    module_version = parse_version(raw.texts.get("/sys/module/nvidia/version", ""))
    return {
        "packages": raw.versions(nvidia_driver.is_driver_package),
        "module_version": module_version or (loaded.version if loaded else None),
        "disk_version": parse_version(raw.stdout("module")),
        "module_files": values["module_files"],
        "uvm_readable": _is_readable(raw, "uvm"),
        "flavour": loaded.flavour if loaded else None,
        "unblocked": [
            name
            for name in values["rivals"]
            if not any(
                nvidia_driver.is_blocked(raw.texts[path], name)
                for path in raw.find("*/modprobe.d/*.conf")
            )
        ],
        "initramfs_outdated": _is_initramfs_outdated(raw),
        "initramfs_program": _initramfs_program(raw),
        "ramdisk_space": values["ramdisk_space"],
        "modules_load": [
            name
            for path in raw.find("*/modules-load.d/*.conf")
            for name in nvidia_driver.parse_modules_load(raw.texts[path])
        ],
        "own_modules": nvidia_driver.parse_modules_load(_own(raw, own_files.MODULES_LOAD)),
        "parameters": nvidia_driver.parse_parameters(raw.texts.get(nvidia_driver.PARAMETERS, "")),
        "own_parameters": nvidia_driver.parse_lines(_own(raw, own_files.MODULE_PARAMETERS)),
        "own_pin": nvidia_driver.parse_lines(_own(raw, own_files.DRIVER_PIN)),
        "own_device_rule": _own(raw, own_files.DEVICE_RULE).splitlines(),
        "parameters_are_new": _is_newer_than_boot(raw, own_files.MODULE_PARAMETERS),
        "peermem": values["peermem"],
        "dkms": _dkms(raw, values),
        "next_kernel": _next_kernel(raw, values["next_kernel"]),
        "next_kernel_skipped": _is_skipped(raw, values["next_kernel"]),
        "headers_available": kernels.parse_headers(raw.stdout("headers")),
        "signing": _signing(raw, values),
        "programs": raw.program_files(nvidia_driver.PROGRAMS),
        "libraries": values["libraries"],
        "persistenced": raw.unit(nvidia_driver.PERSISTENCED),
        "installer": values["installer"],
        "persistence_off": values["persistence_off"],
    }


def _dkms(raw: Raw, values: Values) -> dkms.Dkms:
    names = ("dkms_sources", "dkms_modules", "dkms_logs", "dkms_finishing", "dkms_trees")
    paths = [path for name in names for path in raw.found[name]]
    return dkms.parse(paths, raw.text("/proc/sys/kernel/osrelease"), values["build_logs"])


def _own(raw: Raw, path: str) -> str:
    """Return the block of the role in a file. Lines around it are the admin's."""
    return "\n".join(own_files.parse_block(raw.texts.get(path, ""), "nvidia_driver"))


def _is_newer_than_boot(raw: Raw, path: str) -> bool:
    return raw.modified.get(path, 0.0) > raw.clock["now"] - raw.clock["uptime"]


def _next_kernel(raw: Raw, newer: kernels.Kernel | None) -> kernels.Kernel | None:
    """Return the next kernel. A module that cannot be read is none: the disk was full."""
    if newer is None or _is_readable(raw, "next_module") is not False:
        return newer
    return {**newer, "module": False}


def _is_readable(raw: Raw, name: str) -> bool | None:
    """Tell whether modinfo found a module and could read it; None if that is unknown."""
    answer = raw.outputs.get(name)
    return answer.rc == 0 if answer and answer.rc in (0, 1) else None


def _is_skipped(raw: Raw, newer: kernels.Kernel | None) -> bool:
    """Whether the last boot started another kernel, although this one had its modules already."""
    if newer is None or not newer["module"]:
        return False
    path = nvidia_driver.MODULES_DEP.format(release=newer["release"])
    return path in raw.modified and not _is_newer_than_boot(raw, path)


def _signing(raw: Raw, values: Values) -> signing.Signing | None:
    """Return the state of the key that signs modules; None without Secure Boot."""
    files = values["signing_files"]
    if files is None:
        return None
    certificate, error = files["certificate"], None
    state: signing.State = "missing"
    if certificate and not signing.is_path(certificate):
        state = "unknown"
        error = f"nobody knows which file DKMS takes by its setting {certificate}"
    elif certificate:
        state = signing.parse_state(raw.stdout("mokutil"))
        if state == "unknown":
            error = failure_text(raw.outputs.get("mokutil"), "mokutil")
    return {**files, "state": state, "error": error}


def _is_initramfs_outdated(raw: Raw) -> bool | None:
    """Tell whether a file about nouveau, or our parameters, are newer than an initramfs."""
    patterns = [path.format(release="*") for path in nvidia_driver.INITIAL_RAMDISKS]
    built = [
        modified
        for path, modified in raw.modified.items()
        if any(fnmatchcase(path, pattern) for pattern in patterns)
    ]
    if not built:
        return None
    written = [raw.modified[path] for path in raw.find("*/modprobe.d/*.conf")]
    # A time in the future shows only that a clock was wrong.
    past = [modified for modified in written if modified <= raw.clock["now"]]
    return max(past, default=0.0) > min(built)


def _initramfs_program(raw: Raw) -> str | None:
    files = raw.program_files(nvidia_driver.RAMDISK_PROGRAMS).values()
    return next((one["path"] for one in files if one["executable"]), None)


def _nvml(raw: Raw) -> Nvml:
    answer = nvidia_smi.NOT_INSTALLED
    if "nvidia_smi" in raw.outputs:
        answer = nvidia_smi.parse_answer(*raw.outputs["nvidia_smi"])
    information = {
        PurePosixPath(path).parent.name.lower(): raw.texts[path]
        for path in raw.find("/proc/driver/nvidia/gpus/*/information")
    }
    slots = [gpu["address"] for gpu in cast(platform.Values, raw.values("platform"))["pci"]]
    devices = nvidia_smi.place(
        answer.devices,
        raw.stdout("nvidia_smi_list"),
        {address: nvidia_driver.parse_uuid(text) for address, text in information.items()},
        slots,
    )
    minors = {address: nvidia_driver.parse_minor(text) for address, text in information.items()}
    versions = [device.driver_version for device in devices if device.driver_version]
    return {
        "driver_version": versions[0] if versions else None,
        "complete": answer.is_whole and {*slots} <= {device.pci_address for device in devices},
        "devices": [_device(one, minors.get(one.pci_address or "")) for one in devices],
        "bound": {
            address: {"uuid": nvidia_driver.parse_uuid(text), "minor": minors[address]}
            for address, text in information.items()
        },
        "failure": answer.failure,
    }


def _device(device: nvidia_smi.NvmlDevice, minor: int | None) -> Device:
    return {
        "index": device.index_,
        "uuid": device.uuid,
        "name": device.name,
        "memory_mib": device.memory_mib,
        "pci_address": device.pci_address,
        "minor": minor,
        "persistence_mode": device.persistence_mode,
        "error": device.error,
    }
