# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Judge the files in /dev that exist, but cannot work.

What is missing there is judged by hardware.py.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read.device_files import (
    CONTROL,
    UVM,
    describe_obstacles,
    outdated,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.module_utils.probe.device_files import Obstacle

# What each capability is: the minor numbers are those of /proc/driver/nvidia-caps/mig-minors.
_CAPS = {"/dev/nvidia-caps/nvidia-cap1": "config", "/dev/nvidia-caps/nvidia-cap2": "monitor"}


def judge_device_files(host: str, node: Node) -> Iterator[dict[str, str]]:
    obstacles = blocking(node)
    if obstacles:
        yield finding("DEVICE_FILE_BLOCKED", host, **obstacle_evidence(obstacles))
    reasons = outdated(node["device_files"], node["device_majors"])
    if reasons:
        yield finding(
            "DEVICE_FILE_OUTDATED",
            host,
            evidence=", ".join(reasons.values()),
            commands=quote_corrections(reasons),
        )


def blocking(node: Node) -> list[Obstacle]:
    """Return what stands in the place of a file that the node's GPUs need.

    The file of a GPU that the node does not have is not needed, nor is /dev/nvidia-uvm-tools.
    """
    if not node["pci"]:
        return []
    minors = {gpu["minor"] for gpu in node["nvml"]["devices"]} - {None}
    if len(minors) < len(node["pci"]):
        # The driver does not say all of them, and it counts from 0.
        minors |= set(range(len(node["pci"])))
    needed = {CONTROL, UVM, *(f"/dev/nvidia{minor}" for minor in minors)}
    return [one for one in node["device_obstacles"] if one["path"] in needed]


def obstacle_evidence(obstacles: Sequence[Obstacle]) -> dict[str, str]:
    """Return the evidence of DEVICE_FILE_BLOCKED."""
    commands = [
        f"`{'rmdir' if one['type'] == 'directory' else 'rm'} {one['path']}`" for one in obstacles
    ]
    return {"evidence": describe_obstacles(obstacles), "commands": " and ".join(commands)}


def corrections(paths: Iterable[str]) -> list[list[str]]:
    """Return the commands that create these files, or correct their numbers."""
    return [list(command) for command in dict.fromkeys(map(_correction, paths))]


def quote_corrections(paths: Iterable[str]) -> str:
    """Return these commands as a part of a remedy."""
    return " and ".join(f"`{shlex.join(command)}`" for command in corrections(paths))


def _correction(path: str) -> tuple[str, ...]:
    if path.startswith(UVM):
        return ("nvidia-modprobe", "-c", "0", "-u")
    if path in _CAPS:
        return ("nvidia-modprobe", "-f", f"/proc/driver/nvidia/capabilities/mig/{_CAPS[path]}")
    number = path.removeprefix("/dev/nvidia")
    if number == "-modeset":
        return ("nvidia-modprobe", "-m")
    return ("nvidia-modprobe", "-c", "255" if number == "ctl" else number)
