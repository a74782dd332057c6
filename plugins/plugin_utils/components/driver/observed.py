# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about the NVIDIA driver, its devices, and the GPUs that it reports. No I/O."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TypedDict, cast

from ansible_collections.metal.gpu.plugins.module_utils.probe.components import platform
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.driver import Values
from ansible_collections.metal.gpu.plugins.module_utils.probe.device_files import DeviceFile
from ansible_collections.metal.gpu.plugins.module_utils.probe.device_users import DeviceUser
from ansible_collections.metal.gpu.plugins.module_utils.probe.raw_data import ProgramFileData
from ansible_collections.metal.gpu.plugins.module_utils.probe.runfile import Installer
from ansible_collections.metal.gpu.plugins.module_utils.read import nvidia_driver, nvidia_smi
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw, Unit


class Driver(TypedDict):
    """The driver as it is installed and loaded."""

    packages: dict[str, str]
    module_version: str | None
    disk_version: str | None
    module_files: list[str]
    flavour: str | None
    nouveau_blacklisted: bool
    initramfs_outdated: bool | None
    modules_load: list[str]
    dkms: nvidia_driver.Dkms
    programs: dict[str, ProgramFileData]
    libraries: dict[str, str | None]
    persistenced: Unit
    installer: Installer


class Device(TypedDict):
    """A GPU as the driver reports it; None: unknown."""

    index: int | None
    uuid: str | None
    name: str | None
    memory_mib: int | None
    pci_address: str | None
    minor: int | None
    persistence_mode: bool | None
    error: str | None


class Nvml(TypedDict):
    """The GPUs according to the driver."""

    driver_version: str | None
    complete: bool
    devices: list[Device]
    failure: nvidia_smi.Failure | None


class Observed(TypedDict):
    """The driver."""

    driver: Driver
    nvml: Nvml
    device_files: list[DeviceFile]
    device_users: list[DeviceUser] | None


def observe(raw: Raw) -> Observed:
    values = cast(Values, raw.values("driver"))
    return {
        "driver": _driver(raw, values),
        "nvml": _nvml(raw),
        "device_files": values["device_files"],
        "device_users": values["device_users"],
    }


def _driver(raw: Raw, values: Values) -> Driver:
    loaded = nvidia_driver.parse_loaded_module(raw.texts.get("/proc/driver/nvidia/version", ""))
    module_version = raw.text("/sys/module/nvidia/version")
    return {
        "packages": raw.versions(nvidia_driver.is_driver_package),
        "module_version": module_version or (loaded.version if loaded else None),
        "disk_version": raw.stdout("module").strip() or None,
        "module_files": values["module_files"],
        "flavour": loaded.flavour if loaded else None,
        "nouveau_blacklisted": any(
            nvidia_driver.is_nouveau_blocked(raw.texts[path])
            for path in raw.find("*/modprobe.d/*.conf")
        ),
        "initramfs_outdated": _is_initramfs_outdated(raw),
        "modules_load": [
            name
            for path in raw.find("*/modules-load.d/*.conf")
            for name in nvidia_driver.parse_modules_load(raw.texts[path])
        ],
        "dkms": _dkms(raw),
        "programs": raw.program_files(nvidia_driver.PROGRAMS),
        "libraries": values["libraries"],
        "persistenced": raw.unit(nvidia_driver.PERSISTENCED),
        "installer": values["installer"],
    }


def _dkms(raw: Raw) -> nvidia_driver.Dkms:
    names = ("dkms_sources", "dkms_modules", "dkms_logs")
    paths = [path for name in names for path in raw.found[name]]
    return nvidia_driver.parse_dkms(paths, raw.text("/proc/sys/kernel/osrelease"))


def _is_initramfs_outdated(raw: Raw) -> bool | None:
    """Tell whether a file about nouveau is newer than the running kernel's initramfs."""
    release = raw.text("/proc/sys/kernel/osrelease")
    paths = [path.format(release=release) for path in nvidia_driver.INITIAL_RAMDISKS]
    built = [raw.modified[path] for path in paths if path in raw.modified]
    if not built:
        return None
    written = [raw.modified[path] for path in raw.find("*/modprobe.d/*.conf")]
    # A time in the future shows only that a clock was wrong.
    past = [modified for modified in written if modified <= raw.clock["now"]]
    return max(past, default=0.0) > min(built)


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
