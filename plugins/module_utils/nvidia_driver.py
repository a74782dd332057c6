# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Understand what the NVIDIA kernel module tells in /proc, and which packages are its own. No I/O.

Source: README of the driver, chapter "Open Linux Kernel Modules"; the first line of
/proc/driver/nvidia/version has two forms.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# Patterns for dpkg-query and rpm -qa.
PACKAGE_PATTERNS = (
    "nvidia-*",
    "libnvidia-*",
    "libcuda1",
    "cuda-drivers*",
    "firmware-nvidia-*",
    "kmod-nvidia*",
    "linux-modules-nvidia-*",
)
# Modules that decide who has the GPUs: names, or patterns of them.
MODULES = ("nvidia*", "nouveau", "vfio_pci")
# Of the running kernel; Debian's name, and the one of others.
INITIAL_RAMDISKS = ("/boot/initrd.img-{release}", "/boot/initramfs-{release}.img")
# What depmod writes: every module of a kernel by its file, relative to it.
MODULES_DEP = "/lib/modules/{release}/modules.dep"
# Debian gives the file another name: nvidia-current, nvidia-current-open, nvidia-tesla-535.
_MODULE_FILE = re.compile(r"(?:.*/)?nvidia(?:-current|-tesla(?:-\d+)?)?(?:-open)?\.ko(?:\.\w+)?")
# Of the distribution, for nouveau: in Debian 13, and in Fedora and Enterprise Linux 10. They are
# there with any driver, or none. NVIDIA's own firmware, as in firmware-nvidia-gsp, is the driver's.
_NOUVEAU_FIRMWARE = ("firmware-nvidia-graphics", "nvidia-gpu-firmware")
# Of the distribution, and nothing that a driver needs or brings.
_TOOLS = ("nvidia-cuda-dev", "nvidia-cuda-toolkit", "nvidia-cudnn", "nvidia-detect")
_TOOLKIT_PACKAGES = ("nvidia-container-", "libnvidia-container", "nvidia-docker")
_DRIVER_PACKAGES = (
    *("nvidia-", "libnvidia-", "cuda-drivers", "firmware-nvidia-", "kmod-nvidia"),
    *("linux-modules-nvidia-", "linux-objects-nvidia-"),
)

_VERSION_LINE = re.compile(
    r"NVRM version:.*? (?P<open>Open )?Kernel Module (?:for \S+ )?\s*(?P<version>\d[\d.]+)"
)
_BLACKLIST = re.compile(
    r"^[ \t]*(blacklist[ \t]+nouveau|install[ \t]+nouveau[ \t]+(/usr)?/bin/(false|true))[ \t]*$",
    re.MULTILINE,
)


class LoadedModule(NamedTuple):
    """The nvidia module in the running kernel."""

    version: str
    flavour: str  # "open" or "proprietary"


def parse_loaded_module(text: str) -> LoadedModule | None:
    """Parse /proc/driver/nvidia/version; None where it says something else."""
    match = _VERSION_LINE.search(text)
    if not match:
        return None
    return LoadedModule(match["version"], "open" if match["open"] else "proprietary")


def parse_minor(information: str) -> int | None:
    """Find the number of /dev/nvidia<N> in /proc/driver/nvidia/gpus/<address>/information."""
    match = re.search(r"^Device Minor:\s*(\d+)", information, re.MULTILINE)
    return int(match[1]) if match else None


def parse_modules_load(text: str) -> list[str]:
    """Parse a file of modules-load.d: names with underscores, in the file's order."""
    lines = (line.strip() for line in text.splitlines())
    return [line.replace("-", "_") for line in lines if line and line[0] not in "#;"]


def parse_modules_dep(text: str) -> list[str]:
    """Find the files of the nvidia module itself, relative to modules.dep."""
    files = (line.partition(":")[0] for line in text.splitlines())
    return [file for file in files if _MODULE_FILE.fullmatch(file)]


def is_nouveau_blocked(text: str) -> bool:
    """Tell whether a file of modprobe.d keeps nouveau from being loaded."""
    return bool(_BLACKLIST.search(text))


def is_toolkit_package(name: str) -> bool:
    return name.startswith(_TOOLKIT_PACKAGES)


def is_driver_package(name: str) -> bool:
    own = name == "libcuda1" or name.startswith(_DRIVER_PACKAGES)
    other = name in _NOUVEAU_FIRMWARE or name.startswith(_TOOLS) or is_toolkit_package(name)
    return own and not other
