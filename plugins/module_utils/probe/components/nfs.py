# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read about NFS mounts: units of ours, what else mounts something, and the kernel.

Units of other people can have passwords, so only their paths leave the node.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.probe.node_files import NodeFiles
from ansible_collections.metal.gpu.plugins.module_utils.probe.own_files import parse_block
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading

ROLE = "nfs_mounts"
FOLDER = "/etc/systemd/system"
_UNITS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_ENDINGS = ("mount", "automount")
_WANTED = f"{FOLDER}/remote-fs.target.wants/*.automount"
_FILESYSTEMS, _MOUNTS, _FSTAB = "/proc/filesystems", "/proc/self/mountinfo", "/etc/fstab"
# File systems that the kernel makes up.
_NFS, _AUTOFS = ("nfs", "nfs4"), ("autofs",)


class Mounted(TypedDict):
    """A file system of a disk or of the network that is mounted now, or an automount."""

    path: str
    type: str
    source: str


class Values(TypedDict):
    """What only this component reads."""

    units: dict[str, list[str]]
    others: list[str]
    fstab: list[str]
    mounted: list[Mounted]
    enabled: list[str]
    kernel: bool
    automount: bool


def _values(reading: Reading) -> Values:
    files = NodeFiles(reading.node.root)
    files.read_all(f"{FOLDER}/*.{ending}" for ending in _ENDINGS)
    units = {path: parse_block(text, ROLE) for path, text in files.texts.items()}
    ours = {path: lines for path, lines in units.items() if lines}
    found = (files.find(f"{folder}/*.{ending}") for folder in _UNITS for ending in _ENDINGS)
    release = reading.release
    return {
        "units": ours,
        "others": [path for paths in found for path in paths if path not in ours],
        "fstab": _parse_fstab(files.read(_FSTAB) or ""),
        "mounted": _parse_mounts(files.read(_MOUNTS) or ""),
        "enabled": [posixpath.basename(path) for path in files.find(_WANTED)],
        "kernel": _has(files, release, "kernel/fs/nfs/nfsv4.ko*", _NFS),
        "automount": _has(files, release, "kernel/fs/autofs/autofs4.ko*", _AUTOFS),
    }


def _parse_fstab(text: str) -> list[str]:
    """Return where /etc/fstab mounts something. Sources and options can have passwords."""
    lines = (line.split() for line in text.splitlines() if not line.lstrip().startswith("#"))
    return [_plain(words[1]) for words in lines if len(words) > 2 and words[1].startswith("/")]


def _parse_mounts(text: str) -> list[Mounted]:
    found: list[Mounted] = []
    for line in text.splitlines():
        first, _dash, second = line.partition(" - ")
        words, more = first.split(), second.split()
        if len(words) > 4 and len(more) > 1:
            kind, source = more[0], _plain(more[1])
            if kind in (*_NFS, *_AUTOFS) or source.startswith("/dev/") or ":/" in source:
                found.append({"path": _plain(words[4]), "type": kind, "source": source})
    return found


def _plain(text: str) -> str:
    """Return a path without the octal numbers that stand for blanks."""
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\134", "\\")):
        text = text.replace(code, sign)
    return text


def _has(files: NodeFiles, release: str, module: str, names: tuple[str, ...]) -> bool:
    """Tell whether the kernel has a file system, or a module of it."""
    known = {line.split()[-1] for line in (files.read(_FILESYSTEMS) or "").splitlines() if line}
    return not known.isdisjoint(names) or bool(files.find(f"/lib/modules/{release}/{module}"))


PROBE = Probe(values=_values)
