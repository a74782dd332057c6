# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read about the NVIDIA driver and its devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files, program_files
from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command
from ansible_collections.metal.gpu.plugins.module_utils.probe.device_files import (
    DeviceFile,
    read_device_files,
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
from ansible_collections.metal.gpu.plugins.module_utils.read import nvidia_driver, nvidia_smi

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading
    from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output


class Values(TypedDict):
    """What only this component reads."""

    device_files: list[DeviceFile]
    device_users: list[DeviceUser] | None
    module_files: list[str]
    libraries: dict[str, str | None]
    installer: Installer


def _values(reading: Reading) -> Values:
    root = reading.node.root
    return {
        "device_files": read_device_files(root),
        "device_users": read_device_users(root) if reading.request.device_users else None,
        "module_files": _read_module_files(reading),
        "libraries": {
            name: program_files.find_library(root, name) for name in nvidia_driver.LIBRARIES
        },
        "installer": read_installer(root),
    }


def _read_module_files(reading: Reading) -> list[str]:
    """Return the files of the nvidia module. modules.dep itself is long and stays on the node."""
    path = nvidia_driver.MODULES_DEP.format(release=reading.release)
    return nvidia_driver.parse_modules_dep(NodeFiles(reading.node.root).read(path) or "")


def _times(reading: Reading) -> dict[str, float | None]:
    paths = (path.format(release=reading.release) for path in nvidia_driver.INITIAL_RAMDISKS)
    return {path: reading.files.modified(path) for path in paths}


def _commands(reading: Reading) -> dict[str, Command]:
    return {
        "module": Command(("modinfo", "-F", "version", _read_module_name(reading))),
        "nvidia_smi": Command(nvidia_smi.QUERY, timeout_s=nvidia_smi.TIMEOUT_S),
    }


def _read_module_name(reading: Reading) -> str:
    """Return the name of the NVIDIA module that modprobe would load."""
    files = NodeFiles(reading.node.root)
    directories = [f"{layer}/modprobe.d" for layer in LAYERS]
    files.read_layered(directories, "*.conf", nvidia_driver.INSTALL_LINE)
    by_name = sorted(files.texts, key=lambda path: path.rpartition("/")[2])
    return nvidia_driver.parse_module_name(files.texts[path] for path in by_name)


def _follow_up(_reading: Reading, outputs: Mapping[str, Output]) -> dict[str, Command]:
    answer = outputs.get("nvidia_smi")
    if answer and nvidia_smi.is_cut_short(answer.stdout, answer.stderr):
        return {"nvidia_smi_list": Command(nvidia_smi.LIST, timeout_s=nvidia_smi.TIMEOUT_S)}
    return {}


PROBE = Probe(
    units=(nvidia_driver.PERSISTENCED,),
    files=(
        "/proc/driver/nvidia/version",
        "/proc/driver/nvidia/gpus/*/information",
        "/sys/module/nvidia/version",
    ),
    layered=(Layered("modprobe.d", "*.conf", "nouveau"), Layered("modules-load.d", "*.conf")),
    found={
        "dkms_modules": (nvidia_driver.DKMS_MODULES,),
        "dkms_logs": (nvidia_driver.DKMS_LOGS,),
        "dkms_sources": (nvidia_driver.DKMS_SOURCES,),
    },
    program_files=dict.fromkeys(nvidia_driver.PROGRAMS, program_files.DIRECTORIES),
    own_files=dict.fromkeys((own_files.NOUVEAU_BLACKLIST, own_files.MODULES_LOAD), "nvidia_driver"),
    values=_values,
    times=_times,
    commands=_commands,
    follow_up=_follow_up,
)
