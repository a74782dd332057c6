# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read about NFS mounts: units of ours, what else mounts something, and the kernel.

Units of other people can have passwords, so only their paths leave the node.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, TypedDict, cast

from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command
from ansible_collections.metal.gpu.plugins.module_utils.probe.mount_users import (
    read_mount_users,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe.node_files import NodeFiles
from ansible_collections.metal.gpu.plugins.module_utils.probe.own_files import parse_block
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
from ansible_collections.metal.gpu.plugins.module_utils.read import mounts

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading

ROLE, UNITS = "nfs_mounts", "nfs_units"
FOLDER = "/etc/systemd/system"
# All that systemd reads. Generators write units for /etc/fstab, also of paths with links.
_UNITS = (
    *(f"/etc/systemd/{name}" for name in ("system.control", "system")),
    *(f"/run/systemd/{name}" for name in ("system.control", "transient", "system")),
    *(f"/run/systemd/{name}" for name in ("generator.early", "generator", "generator.late")),
    *(f"{folder}/systemd/system" for folder in ("/usr/local/lib", "/usr/lib", "/lib")),
)
_ENDINGS = ("mount", "automount")
_WANTED = f"{FOLDER}/remote-fs.target.wants/*.automount"
_FILESYSTEMS, _MOUNTS, _FSTAB = "/proc/filesystems", "/proc/self/mountinfo", "/etc/fstab"
_WHERE = "Where="


class Mounted(TypedDict):
    """A file system of a disk or of the network that is mounted now, or an automount."""

    path: str
    type: str
    source: str
    read_only: bool
    version: str  # version of NFS


class Values(TypedDict):
    """What only this component reads."""

    units: dict[str, list[str]]  # lines of the units that the role `nfs_mounts` wrote, by path
    mixed: list[str]  # paths of `units` that have other lines, too
    others: list[str]  # paths of other units that mount something
    fstab: list[str]  # places where `/etc/fstab` mounts something
    mounted: list[Mounted]  # file systems of disks and of the network, and automounts
    # processes that keep an NFS mount after the host unmounted it, by path
    users: dict[str, list[str]]
    enabled: list[str]  # automounts that start at boot
    kernel: bool  # whether the kernel can mount NFS 4, or has a module for it
    automount: bool  # whether the kernel can have automounts


def _values(reading: Reading) -> Values:
    files = NodeFiles(reading.node.root)
    files.read_all(f"{FOLDER}/*.{ending}" for ending in _ENDINGS)
    units = {path: parse_block(text, ROLE) for path, text in files.texts.items()}
    ours = {path: lines for path, lines in units.items() if lines}
    found = (files.find(f"{folder}/*.{ending}") for folder in _UNITS for ending in _ENDINGS)
    release = reading.release
    return {
        "units": ours,
        "mixed": [path for path, lines in ours.items() if _is_mixed(files.texts[path], lines)],
        "others": [path for paths in found for path in paths if path not in ours],
        "fstab": _parse_fstab(files.read(_FSTAB) or ""),
        "mounted": _parse_mounted(files.read(_MOUNTS) or ""),
        "users": read_mount_users(reading.node.root, _paths(ours)),
        "enabled": [posixpath.basename(path) for path in files.find(_WANTED)],
        "kernel": _has(files, release, "kernel/fs/nfs/nfsv4.ko*", mounts.NFS),
        "automount": _has(files, release, "kernel/fs/autofs/autofs4.ko*", (mounts.AUTOFS,)),
    }


def _commands(reading: Reading) -> dict[str, Command]:
    names = [posixpath.basename(path) for path in cast("Values", reading.values["nfs"])["units"]]
    shown = "--property=Id,NeedDaemonReload"
    return {UNITS: Command(("systemctl", "show", shown, "--", *names))} if names else {}


def _is_mixed(text: str, lines: list[str]) -> bool:
    """Tell whether a unit has more than the lines of our block and its two marks."""
    own = sum(bool(line.strip()) for line in lines) + 2
    return sum(bool(line.strip()) for line in text.splitlines()) > own


def _parse_fstab(text: str) -> list[str]:
    """Return where /etc/fstab mounts something. Sources and options can have passwords."""
    lines = (line.split() for line in text.splitlines() if not line.lstrip().startswith("#"))
    paths = (mounts.plain(words[1]) for words in lines if len(words) > 1)
    # As the kernel has them; two slashes at the front would stay.
    return [posixpath.normpath(f"/{path.lstrip('/')}") for path in paths if path.startswith("/")]


def _parse_mounted(text: str) -> list[Mounted]:
    found: list[Mounted] = []
    for one in mounts.parse_mounts(text):
        is_nfs = one.kind in mounts.NFS
        is_plain = is_nfs or one.kind == mounts.AUTOFS or one.source.startswith("/dev/")
        if is_plain or ":/" in one.source:
            found.append(
                {
                    "path": one.path,
                    "type": one.kind,
                    # Others can have passwords, such as those of FTP.
                    "source": one.source if is_plain else one.kind,
                    "read_only": "ro" in one.options,
                    "version": _version(one.more_options) if is_nfs else "",
                }
            )
    return found


def _version(options: tuple[str, ...]) -> str:
    return next((one.partition("=")[2] for one in options if one.startswith("vers=")), "")


def _paths(units: dict[str, list[str]]) -> list[str]:
    """Return where units mount something."""
    lines = (line for unit in units.values() for line in unit if line.startswith(_WHERE))
    return sorted({line[len(_WHERE) :] for line in lines})


def _has(files: NodeFiles, release: str, module: str, names: tuple[str, ...]) -> bool:
    """Tell whether the kernel has a file system, or a module of it."""
    known = {line.split()[-1] for line in (files.read(_FILESYSTEMS) or "").splitlines() if line}
    return not known.isdisjoint(names) or bool(files.find(f"/lib/modules/{release}/{module}"))


PROBE = Probe(values=_values, commands=_commands)
