# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot: mount the simulated trees over the host's, find the hardware, load drivers.

The mounts live in the node's mount namespace and go with it: the next boot starts afresh.
"""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

from . import cards, kmod, trees
from .state import Kernel, Machine, Node

TREES = ("/sys/bus/pci", "/sys/module", "/sys/firmware", "/proc/driver")
OS_RELEASE = "/usr/lib/os-release"
# Of a kernel whose configuration does not name its compiler.
COMPILER = "gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0"
UNKNOWN_OS = """\
PRETTY_NAME="Unknownix 1 (nowhere)"
NAME="Unknownix"
VERSION_ID="1"
VERSION_CODENAME=nowhere
ID=unknownix
"""


def mount_trees(node: Node) -> None:
    """Runs once per boot. A repetition changes nothing."""
    if not is_mounted("/sys/bus/pci"):
        originals = node.state / "sys-module"
        originals.mkdir(parents=True, exist_ok=True)
        _mount("--bind", "/sys/module", str(originals))
        for tree in TREES:
            _mount("-t", "tmpfs", "-o", "mode=0755", "metal-lab", tree)
        # The host's own modules stay visible behind links.
        for module in originals.iterdir():
            Path("/sys/module", module.name).symlink_to(module)
    for original, name in (("/proc/modules", "proc-modules"), ("/proc/devices", "proc-devices")):
        # A kernel without loadable modules has no /proc/modules, and none can be made.
        if Path(original).exists() and not is_mounted(original):
            content = Path(original).read_text()
            (node.state / f"{name}.host").write_text(content)
            (node.state / name).write_text(content)
            _mount("--bind", str(node.state / name), original)
    host = os.uname().release
    if node.release != host:
        (node.state / "kernel-release").write_text(f"{node.release}\n")
        # uname(2), which systemd asks for the release in units, still returns the host's.
        link = node.path(f"/lib/modules/{host}")
        link.unlink(missing_ok=True)
        link.symlink_to(node.release)
    for original, text in kernel_texts(node).items():
        _mount_text(node, original.rpartition("/")[2], original, text)
    _mount_text(node, "boot_id", "/proc/sys/kernel/random/boot_id", f"{uuid.uuid4()}\n")


def kernel_texts(node: Node) -> dict[str, str]:
    """What a simulated kernel says about itself, by file; empty on a node without one."""
    if not (node.state / "kernel-release").exists():
        return {}
    config = node.path(f"/boot/config-{node.release}")
    named = re.search(
        r'^CONFIG_CC_VERSION_TEXT="(.*)"$', config.read_text() if config.exists() else "", re.M
    )
    compiler = f"{named[1] if named else COMPILER}, GNU ld (GNU Binutils) 2.40"
    version = f"Linux version {node.release} (metal-lab) ({compiler}) #1 SMP PREEMPT_DYNAMIC\n"
    return {"/proc/sys/kernel/osrelease": f"{node.release}\n", "/proc/version": version}


def render_os_release(node: Node, machine: Machine) -> None:
    """Mount another operating system's os-release, or unmount it."""
    wanted = machine.has_fault("os-unknown")
    if wanted and not is_mounted(OS_RELEASE):
        (node.state / "os-release").write_text(UNKNOWN_OS)
        _mount("--bind", str(node.state / "os-release"), OS_RELEASE)
    elif is_mounted(OS_RELEASE) and not wanted:
        subprocess.run(["umount", OS_RELEASE], check=True)


def _mount_text(node: Node, name: str, path: str, text: str) -> None:
    if not is_mounted(path):
        (node.state / name).write_text(text)
        _mount("--bind", str(node.state / name), path)


def is_mounted(path: str) -> bool:
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == path for line in mounts)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def start(node: Node, machine: Machine, kernel: Kernel) -> None:
    """Start the kernel of a machine that was off, when somebody can have exchanged its cards."""
    cards.exchange(machine)
    coldplug(node, machine, kernel)


def coldplug(node: Node, machine: Machine, kernel: Kernel) -> None:
    """Load the driver that udev would load for each device, then the modules of modules-load.d.

    systemd-modules-load cannot do it: it uses libkmod, which does not know simulated modules.
    """
    trees.remove_devices(node)
    for fault in machine.faults("vfio"):  # vfio-pci.ids= on the kernel's command line
        bind_vfio(machine, kernel, fault["address"])
    for module in ("mlx5_ib", "nouveau", "nvidia"):
        if not kmod.is_blacklisted(node, module):
            try_to_load(node, machine, kernel, module)
    for name in modules_to_load(node):
        try_to_load(node, machine, kernel, name)


def list_kernels_modules(node: Node, machine: Machine) -> None:
    """Have modules.dep list the modules of the kernel that are simulated as such."""
    if not machine.management_ports:
        return
    file = node.modules / "modules.dep"
    text = file.read_text() if file.exists() else ""
    missing = [f"{path}:\n" for path in kmod.ADAPTER_MODULES.values() if f"{path}:" not in text]
    if missing:
        file.write_text(text + "".join(missing))


def bind_vfio(machine: Machine, kernel: Kernel, address: str) -> None:
    kernel.forget(address)
    kernel.bound[address] = "vfio-pci"
    if "vfio_pci" not in kernel.modules:
        kernel.modules.append("vfio_pci")


def modules_to_load(node: Node) -> list[str]:
    """The simulated modules that modules-load.d names."""
    texts = _drop_ins(node, ("/etc", "/run", "/usr/lib"), "modules-load.d", "*.conf")
    names = [kmod.simulated_name(line.strip()) for text in texts for line in text.splitlines()]
    return [name for name in names if name and not kmod.is_blacklisted(node, name)]


def _drop_ins(node: Node, roots: tuple[str, ...], folder: str, pattern: str) -> list[str]:
    """Contents in the order of the files' names. A file hides one of its name in later roots."""
    files: dict[str, Path] = {}
    for root in roots:
        for file in node.path(f"{root}/{folder}").glob(pattern):
            files.setdefault(file.name, file)
    return [files[name].read_text() for name in sorted(files) if files[name].is_file()]


def try_to_load(node: Node, machine: Machine, kernel: Kernel, module: str) -> None:
    """Load a module as at boot: a failure is a line in the log."""
    try:
        kmod.load(node, machine, kernel, module)
    except kmod.ModuleNotFound:
        pass
    except kmod.KmodError as error:
        print(f"modprobe: {error}", file=sys.stderr)


# ---- uevents ----------------------------------------------------------------------------------

RULE_ITEM = re.compile(r'(\w+(?:\{[^}]*\})?)\s*([=!+:-]?=)\s*"((?:[^"\\]|\\.)*)"')


def events_of(module: str) -> Iterator[dict[str, str]]:
    """The events that the kernel sends after it loaded a module."""
    places = {"module": f"/module/{module}"}
    if module == "nvidia":
        places["drivers"] = "/bus/pci/drivers/nvidia"
    for subsystem, path in places.items():
        yield {"ACTION": "add", "SUBSYSTEM": subsystem, "KERNEL": module, "DEVPATH": path}


def commands_for(node: Node, event: dict[str, str]) -> list[str]:
    """The commands and units of the udev rules that match an event.

    This supports matches by the event's own keys and by TEST, RUN and SYSTEMD_WANTS. It ignores
    GOTO, so a rule has to contain its own matches.
    """
    texts = _drop_ins(node, ("/etc", "/run", "/usr/lib"), "udev/rules.d", "*.rules")
    commands = []
    for line in "\n".join(texts).replace("\\\n", " ").splitlines():
        items = [] if line.lstrip().startswith("#") else RULE_ITEM.findall(line)
        matches = [item for item in items if item[1] in ("==", "!=")]
        if not any(key in ("KERNEL", "DEVPATH") for key, _operator, _value in matches):
            continue
        if all(_fits(node, event, key, value) == (sign == "==") for key, sign, value in matches):
            assigned = [(key, value) for key, sign, value in items if sign not in ("==", "!=")]
            commands += [
                value.replace("$$", "$").replace("%%", "%")
                for key, value in assigned
                if key == "RUN"
            ]
            commands += [
                f"systemctl start --no-block {value}"
                for key, value in assigned
                if key == "ENV{SYSTEMD_WANTS}"
            ]
    return commands


def _fits(node: Node, event: dict[str, str], key: str, pattern: str) -> bool:
    if key == "TEST":
        return node.path(pattern).exists()
    value = event.get(key)
    return value is not None and any(
        fnmatch.fnmatchcase(value, alternative) for alternative in pattern.split("|")
    )


def send_events(node: Node, modules: list[str]) -> None:
    """Apply udev's rules here, because udev does not see simulated modules."""
    for module in modules:
        for event in events_of(module):
            for command in commands_for(node, event):
                subprocess.run(command, shell=True, check=False, capture_output=True)
