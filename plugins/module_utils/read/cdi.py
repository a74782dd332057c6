# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse specifications of the Container Device Interface (CDI).

Documents are already loaded from YAML or JSON.

Source: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

from __future__ import annotations

import re
from posixpath import dirname
from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.mappings import section, text
from ansible_collections.metal.gpu.plugins.module_utils.read.mig import is_of_instance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The second one is also /run/cdi, because systemd makes /var/run a link to /run.
DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
SUFFIXES = ("yaml", "json")
# The driver's libraries have its version in their names: libcuda.so.580.178.04.
_LIBRARY = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d+\.\d+(?:\.\d+)?)$", re.ASCII)
# The generator names devices by their number, by type and number, by UUID, or in several ways.
_WHOLE = re.compile(r"(?:gpu)?(?P<gpu>\d+)", re.ASCII)
_PART = re.compile(r"(?:mig)?(?P<part>(?P<gpu>\d+):\d+)", re.ASCII)


def gpu_number(name: str) -> str | None:
    """Return "0" for the names 0 and gpu0 of a GPU, and 0:1 and mig0:1 of its part."""
    match = _WHOLE.fullmatch(name) or _PART.fullmatch(name)
    return match["gpu"] if match else None


def part_number(name: str) -> str | None:
    """Return "0:1" for the names 0:1 and mig0:1 of a part of a GPU (MIG)."""
    match = _PART.fullmatch(name)
    return match["part"] if match else None


def parse_kind(document: object) -> str | None:
    """Return vendor and class of the devices, such as "nvidia.com/gpu"."""
    return text(document, "kind")


def parse_majors(document: object) -> dict[str, int]:
    """Return the major numbers of device files in containers, by the path on the node.

    A specification can leave them out. Then, the runtime takes those of the files.
    """
    found = {}
    for edits in _all_edits(document):
        nodes = edits.get("deviceNodes")
        for node in nodes if isinstance(nodes, list) else []:
            path, major = text(node, "hostPath") or text(node, "path"), section(node).get("major")
            if path and isinstance(major, int):
                found[path] = major
    return found


def parse_parts(document: object) -> dict[str, list[str]]:
    """Return the device files of MIG instances, by the qualified name of the device with them."""
    found = {}
    devices = section(document).get("devices")
    for device in devices if isinstance(devices, list) else []:
        nodes = section(section(device).get("containerEdits")).get("deviceNodes")
        paths = [text(node, "path") or "" for node in (nodes if isinstance(nodes, list) else [])]
        files = [path for path in paths if is_of_instance(path)]
        kind, name = text(document, "kind"), text(device, "name")
        if files and kind and name:
            found[f"{kind}={name}"] = files
    return found


def parse_drivers(document: object) -> list[str]:
    """Return the versions of the driver whose libraries containers get, each once."""
    found = []
    for edits in _all_edits(document):
        mounts = edits.get("mounts")
        for mount in mounts if isinstance(mounts, list) else []:
            match = _LIBRARY.search(text(mount, "hostPath") or "")
            if match:
                found.append(match[1])
    return list(dict.fromkeys(found))


def _all_edits(document: object) -> list[Mapping[str, object]]:
    """Return what containers get of all devices, and of single ones."""
    devices = section(document).get("devices")
    parts = [document, *(devices if isinstance(devices, list) else [])]
    return [section(section(part).get("containerEdits")) for part in parts]


def usable(names: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the devices that an engine can give, of those that specifications have, by path.

    Of two files in one directory that have the same device, engines use neither. A file in the
    directory that they read last replaces one in the other.
    """
    found: dict[str, list[int]] = {}
    for path, devices in names.items():
        for device in dict.fromkeys(devices):
            found.setdefault(device, []).append(DIRECTORIES.index(dirname(path)))
    return {device for device, places in found.items() if places.count(max(places)) == 1}


def parse_devices(document: object) -> list[str]:
    """Return the qualified names of the devices, in the specification's order."""
    devices = section(document).get("devices")
    names = [text(device, "name") for device in devices] if isinstance(devices, list) else []
    kind = text(document, "kind")
    return [f"{kind}={name}" for name in names if kind and name]
