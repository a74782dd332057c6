# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse the files of the NVIDIA kernel module, and recognise the driver's packages.

Source: README of the driver, chapter "Open Linux Kernel Modules"; the first line of
/proc/driver/nvidia/version has two forms.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

# Patterns for dpkg-query and rpm -qa.
PACKAGE_PATTERNS = (
    "nvidia-*",
    "libnvidia-*",
    "libcuda1",
    "cuda-drivers*",
    "firmware-nvidia-*",
    "kmod-nvidia*",
    "linux-modules-nvidia-*",
    "linux-objects-nvidia-*",
    "linux-signatures-nvidia-*",
    "akmod-nvidia*",
    "dkms-nvidia*",
    "xorg-x11-drv-nvidia*",
    "nvlsm",  # the subnet manager of NVLink 5
)
# Modules that can bind GPUs: names, or patterns of names.
MODULES = ("nvidia*", "nouveau", "vfio_pci")
# Files that are necessary in addition to the modules.
PROGRAMS = ("nvidia-smi", "nvidia-persistenced")
PERSISTENCED = "nvidia-persistenced.service"
# Ubuntu's own unit has it. Without it, the daemon turns persistence mode on.
PERSISTENCE_OFF = "--no-persistence-mode"
VERSION = "/proc/driver/nvidia/version"  # of the loaded module
PARAMETERS = "/proc/driver/nvidia/params"  # of the loaded module
LIBRARIES = ("libnvidia-ml.so.1", "libcuda.so.1")
TOOLKIT_PROGRAMS = (
    *("nvidia-container-runtime", "nvidia-container-runtime-hook"),
    *("nvidia-cdi-hook", "nvidia-ctk"),
)
# The unit that writes the CDI specification of the toolkit.
CDI_UNIT = "nvidia-cdi-refresh.service"
CDI_OPTIONS = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
LINK_COMMAND = "create-dev-char-symlinks"  # of nvidia-ctk, in a udev rule
# The package's script creates it, so the package manager does not know it.
# Source: container toolkit, packaging/debian/nvidia-container-toolkit-base.postinst
TOOLKIT_CONFIG = "/etc/nvidia-container-runtime/config.toml"
# Debian's name of the file, and the name elsewhere.
INITIAL_RAMDISKS = ("/boot/initrd.img-{release}", "/boot/initramfs-{release}.img")
# What builds them; the first one that is there. Ubuntu's dracut has the other one, as a wrapper.
# dracut-core may be installed beside initramfs-tools, which then owns the ramdisk.
RAMDISK_PROGRAMS = ("update-initramfs", "dracut")
# depmod writes this list of the files of all modules; paths are relative to it.
MODULES_DEP = "/lib/modules/{release}/modules.dep"
# Debian uses other file names: nvidia-current, nvidia-current-open, nvidia-tesla-535.
MODULE = r"nvidia(?:-current|-tesla(?:-\d+)?)?(?:-open)?"
_MODULE_FILE = re.compile(rf"(?:.*/)?{MODULE}\.ko(?:\.\w+)?")
_PEERMEM_FILE = re.compile(rf"(?:.*/)?{MODULE}-peermem\.ko(?:\.\w+)?")
# Firmware for nouveau, from Debian 13, and from Fedora and Enterprise Linux 10. It may be installed
# with any driver or without one. NVIDIA's firmware, as in firmware-nvidia-gsp, is part of a driver.
_NOUVEAU_FIRMWARE = ("firmware-nvidia-graphics", "nvidia-gpu-firmware")
# Packages of the distribution that are not part of a driver.
_TOOLS = ("nvidia-cuda-dev", "nvidia-cuda-toolkit", "nvidia-cudnn", "nvidia-detect")
_TOOLKIT_PACKAGES = ("nvidia-container-", "libnvidia-container", "nvidia-docker")
_DRIVER_PACKAGES = (
    *("nvidia-", "libnvidia-", "cuda-drivers", "firmware-nvidia-", "kmod-nvidia"),
    *("linux-modules-nvidia-", "linux-objects-nvidia-", "linux-signatures-nvidia-"),
    *("akmod-nvidia", "dkms-nvidia", "xorg-x11-drv-nvidia"),
)

_VERSION_LINE = re.compile(
    r"NVRM version:.*? (?P<open>Open )?Kernel Module (?:for \S+ )?\s*(?P<version>\d[\d.]+)"
)
_BLACKLIST = re.compile(
    r"^[ \t]*(?:blacklist[ \t]+([\w-]+)"
    r"|install[ \t]+([\w-]+)[ \t]+(?:/usr)?/bin/(?:false|true))[ \t]*$",
    re.MULTILINE,
)
# Drivers of the kernel for NVIDIA's GPUs. The second one exists since Linux 6.15, and binds GPUs of
# Turing to Ada. Source: beclab/Olares#3963, 2026-08-17
NOUVEAU, NOVA = "nouveau", "nova_core"
_NOVA_FILE = re.compile(r"(?:.*/)?nova[_-]core\.ko(?:\.\w+)?:", re.MULTILINE)


# Debian's modules have other file names. modprobe finds them by a line such as
# "install nvidia modprobe -i nvidia-current-open $CMDLINE_OPTS". Source: nvidia-kernel-support and
# nvidia-open-kernel-support 550.163.01-2 of Debian 13.
INSTALL_LINE = "install nvidia "
_INSTALL = re.compile(
    r"^[ \t]*install[ \t]+nvidia[ \t]+(?:\S*/)?modprobe(?:[ \t]+-\S+)*[ \t]+(?P<name>[\w-]+)",
    re.MULTILINE,
)


class LoadedModule(NamedTuple):
    """The nvidia module in the running kernel."""

    version: str
    flavour: str  # "open" or "proprietary"


def parse_loaded_module(text: str) -> LoadedModule | None:
    """Parse /proc/driver/nvidia/version; None if its form is unknown."""
    match = _VERSION_LINE.search(text)
    if not match:
        return None
    return LoadedModule(match["version"], "open" if match["open"] else "proprietary")


def parse_minor(information: str) -> int | None:
    """Find the number of /dev/nvidia<N> in /proc/driver/nvidia/gpus/<address>/information."""
    match = re.search(r"^Device Minor:\s*([0-9]{1,6})\s*$", information, re.MULTILINE)
    return int(match[1]) if match else None


def parse_uuid(information: str) -> str | None:
    """Find the UUID in the same file; None if the module writes question marks instead."""
    match = re.search(r"^GPU UUID:\s*(GPU-[0-9a-fA-F-]{36})\s*$", information, re.MULTILINE)
    return match[1] if match else None


def parse_modules_load(text: str) -> list[str]:
    """Parse a file of modules-load.d: names with underscores, in the file's order."""
    return [line.replace("-", "_") for line in parse_lines(text)]


def parse_module_name(modprobe_files: Iterable[str]) -> str:
    """Return the name of the module that `modprobe nvidia` loads.

    The argument is the texts of modprobe.d in modprobe's order; the first match counts.
    """
    found = (match["name"] for text in modprobe_files for match in _INSTALL.finditer(text))
    return next(found, "nvidia")


def parse_modules_dep(text: str) -> list[str]:
    """Return the files of the module nvidia (not nvidia_uvm and so on), relative to modules.dep."""
    files = (line.partition(":")[0] for line in text.splitlines())
    return [file for file in files if _MODULE_FILE.fullmatch(file)]


def has_peermem(text: str) -> bool:
    """Return whether modules.dep has the module nvidia-peermem."""
    files = (line.partition(":")[0] for line in text.splitlines())
    return any(_PEERMEM_FILE.fullmatch(file) for file in files)


def is_module_file(path: str) -> bool:
    """Return whether a file is the module nvidia itself."""
    return bool(_MODULE_FILE.fullmatch(path))


def parse_parameters(text: str) -> dict[str, str]:
    """Parse /proc/driver/nvidia/params: the parameters of the loaded module, without NVreg_."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip().strip('"') for name, colon, value in pairs if colon}


def parse_lines(text: str) -> list[str]:
    """Return the lines of a configuration file without comments."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and line[0] not in "#;"]


def is_blocked(text: str, module: str) -> bool:
    """Return whether a file of modprobe.d prevents that a device loads a module."""
    names = ("".join(match.groups("")) for match in _BLACKLIST.finditer(text))
    return any(name.replace("-", "_") == module for name in names)


def parse_rivals(modules_deps: Iterable[str]) -> list[str]:
    """Return the drivers for GPUs to be blocked, from the lists of modules of the kernels.

    nouveau is blocked everywhere, and the other one where a kernel has it.
    """
    return [NOUVEAU, *([NOVA] if any(map(_NOVA_FILE.search, modules_deps)) else [])]


def is_toolkit_package(name: str) -> bool:
    return name.startswith(_TOOLKIT_PACKAGES)


def is_driver_package(name: str) -> bool:
    own = name == "libcuda1" or name.startswith(_DRIVER_PACKAGES)
    other = name in _NOUVEAU_FIRMWARE or name.startswith(_TOOLS) or is_toolkit_package(name)
    return own and not other
