# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's files in /dev, and the programs that create them.

Loading a module creates none, as with real modules. Who does is in recorded/device_files.yml. NVML
creates some by itself, in nvml.c.
"""

from __future__ import annotations

import argparse
import os
import re
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from . import kmod
from .state import Kernel, Machine, Node

NVIDIA_MAJOR = 195
CONTROL, MODESET = ("nvidiactl", 255), ("nvidia-modeset", 254)
UVM, UVM_TOOLS = "nvidia-uvm", "nvidia-uvm-tools"
NAMES = r"nvidia(\d+|ctl|-uvm|-uvm-tools|-modeset|-caps)"
# Names below it are those that a fault took away. NVML reads them, too.
KEPT_AWAY = "kept-away"

Numbers = tuple[int, int]


def possible(kernel: Kernel) -> dict[str, Numbers]:
    """The files that work with the loaded modules, with their major and minor numbers."""
    found: dict[str, Numbers] = {}
    if kernel.driver:
        found[CONTROL[0]] = (NVIDIA_MAJOR, CONTROL[1])
        found.update({f"nvidia{minor}": (NVIDIA_MAJOR, minor) for minor in kernel.minors.values()})
    if "nvidia_modeset" in kernel.modules:
        found[MODESET[0]] = (NVIDIA_MAJOR, MODESET[1])
    if "nvidia_uvm" in kernel.modules:
        found |= {UVM: (kernel.uvm_major, 0), UVM_TOOLS: (kernel.uvm_major, 1)}
    return found


def create(kernel: Kernel, names: Iterable[str]) -> None:
    """Have files created. Those that exist stay, and trees.render writes the others."""
    files = possible(kernel)
    kernel.device_files.update({name: files[name] for name in names if name in files})


def create_for_driver(kernel: Kernel) -> None:
    """What NVIDIA's libraries create when a program of root uses them: nothing for CUDA."""
    create(kernel, [name for name in possible(kernel) if re.fullmatch(r"nvidia(\d+|ctl)", name)])


# ---- nvidia-modprobe ----------------------------------------------------------------------------


class _Refused(Exception):
    """An option that nvidia-modprobe does not know."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise _Refused(message)


def _parser() -> argparse.ArgumentParser:
    """The options of 610.43.03. Those for NVSwitch, NVLink, MIG and Grace Hopper are not here."""
    parser = _Parser(prog="nvidia-modprobe", add_help=False, allow_abbrev=False)
    parser.add_argument("-c", "--create-nvidia-device-file", type=int, action="append", default=[])
    parser.add_argument("-u", "--unified-memory", action="store_true")
    parser.add_argument("-m", "--modeset", action="store_true")
    return parser


def nvidia_modprobe(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> int:
    """Load a module and create the files of the given minor numbers. Returns the exit status.

    Like the real one, it says nothing about errors, and creates nothing without -c, but for -m. It
    removes what has another number, or is no device. What a fault took away comes back. Unlike the
    real one, it ignores ModifyDeviceFiles, which is 0 here, and creates no links in /dev/char.
    """
    try:
        options = _parser().parse_args(arguments)
    except _Refused:
        words = "Invalid commandline, please run `nvidia-modprobe --help` for usage information."
        print(f"\nERROR: {words}\n", file=sys.stderr)
        return 1
    files: list[str] = []
    if options.unified_memory:
        modules = ["nvidia_uvm"]
        for minor in options.create_nvidia_device_file:
            files += [UVM, UVM_TOOLS] if minor == 0 else []
    else:
        modules = ["nvidia"]
        for minor in options.create_nvidia_device_file:
            files.append(CONTROL[0] if minor == CONTROL[1] else f"nvidia{minor}")
    if options.modeset:
        modules.append("nvidia_modeset")
        files.append(MODESET[0])
    for module in modules:
        try:
            kmod.load(node, machine, kernel, module)
        except kmod.KmodError:
            return 1
    kernel.missing_files = [name for name in kernel.missing_files if name not in files]
    wanted = possible(kernel)
    for name in files:
        if name in wanted and not _make_way(node.path(f"/dev/{name}"), wanted[name]):
            return 1
        create(kernel, [name])
    return 0


def _make_way(path: Path, numbers: Numbers) -> bool:
    """Remove what is not the device with these numbers. A directory that has files stays."""
    try:
        status = path.stat()
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(*numbers):
            return True
        path.rmdir() if stat.S_ISDIR(status.st_mode) else path.unlink()
    except FileNotFoundError:
        return not path.is_symlink()
    except OSError:
        return False
    return True
