# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read about the NVIDIA driver and its devices."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.probe import (
    kernel_modules,
    own_files,
    program_files,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command
from ansible_collections.metal.gpu.plugins.module_utils.probe.device_files import (
    DeviceFile,
    Obstacle,
    read_device_files,
    read_obstacles,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe.device_users import (
    DeviceUser,
    read_device_users,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe.node_files import NodeFiles
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import LAYERS, Layered, Probe
from ansible_collections.metal.gpu.plugins.module_utils.probe.runfile import (
    Installer,
    read_installer,
)
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    device_files,
    dkms,
    kernels,
    nvidia_driver,
    nvidia_smi,
    signing,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading
    from ansible_collections.metal.gpu.plugins.module_utils.read.kernels import Kernel
    from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output


# Ramdisks of no kernel's own, which the programs leave as they are.
_NOT_REBUILT = re.compile(r"-0-rescue-|kdump\.img$")


class RamdiskSpace(TypedDict):
    """What is free in /boot, and the size of the largest initial ramdisk, in bytes."""

    free: int
    needed: int


class _Early(TypedDict):
    device_users: list[DeviceUser] | None
    module_files: list[str]
    peermem: bool
    rivals: list[str]
    next_kernel: Kernel | None
    build_logs: dict[str, dkms.Log]
    signing_files: signing.Files | None
    persistence_off: str | None
    libraries: dict[str, str | None]
    installer: Installer
    ramdisk_space: RamdiskSpace | None


class _Late(TypedDict):
    device_files: list[DeviceFile]
    device_obstacles: list[Obstacle]


class Values(_Early, _Late):
    """What only this component reads."""


def _values(reading: Reading) -> _Early:
    root = reading.node.root
    modules_dep = kernel_modules.read_modules_dep(reading, reading.release)
    return {
        "device_users": read_device_users(root) if reading.request.device_users else None,
        "module_files": nvidia_driver.parse_modules_dep(modules_dep),
        "peermem": nvidia_driver.has_peermem(modules_dep),
        "rivals": nvidia_driver.parse_rivals(
            kernel_modules.read_modules_dep(reading, release)
            for release in {reading.release, *kernel_modules.releases(reading)}
        ),
        "next_kernel": kernel_modules.read_next_kernel(reading),
        "build_logs": kernel_modules.read_build_logs(reading),
        "signing_files": kernel_modules.find_signing_files(reading),
        "persistence_off": kernel_modules.find_persistence_off(reading),
        "libraries": {
            name: program_files.find_library(root, name) for name in nvidia_driver.LIBRARIES
        },
        "installer": read_installer(root),
        "ramdisk_space": _read_space(reading),
    }


def _read_space(reading: Reading) -> RamdiskSpace | None:
    """Return None without an initial ramdisk."""
    patterns = [path.format(release="*") for path in nvidia_driver.INITIAL_RAMDISKS]
    root = reading.node.root
    found = [one for path in patterns for one in root.glob(path.lstrip("/")) if one.is_file()]
    sizes = [one.stat().st_size for one in found if not _NOT_REBUILT.search(one.name)]
    if not sizes:
        return None
    boot = os.statvfs(root / "boot")
    return {"free": boot.f_bavail * boot.f_frsize, "needed": max(sizes)}


def _late_values(reading: Reading) -> _Late:
    """Read the files in /dev, of which nvidia-smi has created some if root runs it."""
    root = reading.node.root
    return {
        "device_files": read_device_files(root),
        "device_obstacles": read_obstacles(root),
    }


def _read(reading: Reading) -> None:
    """Read files of ours. Of modprobe.d, only files about the kernel's own drivers were kept."""
    reading.files.read(own_files.MODULE_PARAMETERS)
    reading.files.read(own_files.DRIVER_PIN)
    reading.files.read(own_files.DEVICE_RULE)


def _times(reading: Reading) -> dict[str, float | None]:
    patterns = (*nvidia_driver.INITIAL_RAMDISKS, nvidia_driver.MODULES_DEP)
    return {
        path.format(release=release): reading.files.modified(path.format(release=release))
        for release in kernel_modules.releases(reading)
        for path in patterns
    }


def _commands(reading: Reading) -> dict[str, Command]:
    name = _read_module_name(reading)
    commands = {
        "module": Command(("modinfo", "-F", "version", name)),
        "uvm": Command(("modinfo", "-F", "version", f"{name}-uvm")),
        "nvidia_smi": Command(nvidia_smi.QUERY, timeout_s=nvidia_smi.TIMEOUT_S),
    }
    newer = kernel_modules.read_next_kernel(reading)
    if newer and newer["module"]:
        words = ("modinfo", "-k", newer["release"], "-F", "version", name)
        commands["next_module"] = Command(words)
    files = kernel_modules.find_signing_files(reading)
    certificate = files and files["certificate"]
    if certificate and signing.is_path(certificate):
        commands["mokutil"] = Command(("mokutil", "--test-key", certificate))
    return commands


def _read_module_name(reading: Reading) -> str:
    """Return the name of the NVIDIA module that modprobe would load."""
    files = NodeFiles(reading.node.root)
    directories = [f"{layer}/modprobe.d" for layer in LAYERS]
    files.read_layered(directories, "*.conf", (nvidia_driver.INSTALL_LINE,))
    by_name = sorted(files.texts, key=lambda path: path.rpartition("/")[2])
    return nvidia_driver.parse_module_name(files.texts[path] for path in by_name)


def _follow_up(reading: Reading, outputs: Mapping[str, Output]) -> dict[str, Command]:
    answer = outputs.get("nvidia_smi")
    commands = {}
    if answer and nvidia_smi.is_cut_short(answer.stdout, answer.stderr):
        commands["nvidia_smi_list"] = Command(nvidia_smi.LIST, timeout_s=nvidia_smi.TIMEOUT_S)
    # Headers are necessary only for a module that is built.
    if answer is None or answer.rc != 0:
        missing = [
            release
            for release in kernel_modules.releases(reading)
            if not kernel_modules.has_headers(reading, release)
        ]
        if missing:
            commands["headers"] = Command(kernels.headers_query(missing))
    return commands


PROBE = Probe(
    units=(nvidia_driver.PERSISTENCED,),
    files=(
        nvidia_driver.VERSION,
        "/proc/driver/nvidia/gpus/*/information",
        "/sys/module/nvidia/version",
        nvidia_driver.PARAMETERS,
        device_files.DEVICES,
    ),
    layered=(
        Layered("modprobe.d", "*.conf", ("nouveau", "nova")),
        Layered("modules-load.d", "*.conf"),
    ),
    found={
        "dkms_modules": (dkms.MODULES,),
        "dkms_logs": (dkms.LOGS,),
        "dkms_finishing": (dkms.FINISHING,),
        "dkms_sources": (dkms.SOURCES,),
        "dkms_trees": (dkms.TREES,),
    },
    program_files=dict.fromkeys(
        (*nvidia_driver.PROGRAMS, *nvidia_driver.RAMDISK_PROGRAMS), program_files.DIRECTORIES
    ),
    own_files=dict.fromkeys((*own_files.OF_DRIVER, own_files.DRIVER_PIN), "nvidia_driver"),
    read=_read,
    values=_values,
    times=_times,
    commands=_commands,
    follow_up=_follow_up,
    late_values=_late_values,
)
