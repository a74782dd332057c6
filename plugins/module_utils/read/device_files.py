# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Which files in /dev cannot work?

A driver that is loaded later can get other major numbers. The files in /dev keep theirs until
somebody creates them again, or until the next boot. And a container runtime creates a directory for
a mount whose source is missing, so that nobody can create the file there.

Source: tests/recorded/device_files.yml
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.probe.device_files import (
        DeviceFile,
        Obstacle,
    )

DEVICES = "/proc/devices"
CONTROL, UVM = "/dev/nvidiactl", "/dev/nvidia-uvm"
# The files of each name in /proc/devices. Up to branch 545, the first one was another name. Of
# nvidia-caps, only those that each driver with MIG has: the others come and go with the instances.
_OWNERS = {
    "nvidia": re.compile(r"/dev/nvidia(?:\d+|ctl|-modeset)"),
    "nvidia-frontend": re.compile(r"/dev/nvidia(?:\d+|ctl)"),
    "nvidia-uvm": re.compile(r"/dev/nvidia-uvm(?:-tools)?"),
    "nvidia-caps": re.compile(r"/dev/nvidia-caps/nvidia-cap[12]"),
}
_LINE = re.compile(r"^ *(?P<major>\d+) (?P<name>\S+)$", re.MULTILINE)
_KINDS = {"directory": "a directory", "file": "a plain file", "link": "a link to no device"}


def parse_majors(text: str) -> dict[str, int]:
    """Parse /proc/devices: the major numbers of the driver's character devices, by their names."""
    characters = text.partition("Block devices:")[0]
    found = {match["name"]: int(match["major"]) for match in _LINE.finditer(characters)}
    return {name: found[name] for name in _OWNERS if name in found}


def outdated(files: Iterable[DeviceFile], majors: Mapping[str, int]) -> dict[str, str]:
    """Return the files with another major number than the loaded driver, each with the reason."""
    return outdated_numbers({file["path"]: file["major"] for file in files}, majors)


def outdated_numbers(found: Mapping[str, int], majors: Mapping[str, int]) -> dict[str, str]:
    """Return the paths with another major number than the loaded driver, each with the reason.

    A driver that is not loaded has no numbers, and says nothing about its files.
    """
    reasons = {}
    for path, major in found.items():
        numbers = [number for name, number in majors.items() if _OWNERS[name].fullmatch(path)]
        if numbers and major not in numbers:
            reasons[path] = f"{path} has the major number {major}, and the driver has {numbers[0]}"
    return reasons


def describe_obstacles(obstacles: Sequence[Obstacle]) -> str:
    """Say what stands in the place of device files; empty without any."""
    return ", ".join(
        f"{one['path']} is {_KINDS.get(one['type'], 'no character device')}" for one in obstacles
    )
