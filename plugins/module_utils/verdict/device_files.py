# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Judge the files in /dev that exist, but cannot work. No I/O.

What is missing there is judged by hardware.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read.device_files import (
    describe_obstacles,
    outdated,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.probe.device_files import Obstacle
    from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node

_UVM = "/dev/nvidia-uvm"
_CAPS = "/dev/nvidia-caps/"


def judge_device_files(host: str, node: Node) -> Iterator[dict[str, str]]:
    if node["pci"] and node["device_obstacles"]:
        yield finding("DEVICE_FILE_BLOCKED", host, **obstacle_evidence(node["device_obstacles"]))
    reasons = outdated(node["device_files"], node["device_majors"])
    if reasons:
        commands = list(dict.fromkeys(map(_command, reasons)))
        yield finding(
            "DEVICE_FILE_OUTDATED",
            host,
            evidence=", ".join(reasons.values()),
            commands=" and ".join(commands),
        )


def obstacle_evidence(obstacles: Sequence[Obstacle]) -> dict[str, str]:
    """Return the evidence of DEVICE_FILE_BLOCKED."""
    commands = [
        f"`{'rmdir' if one['type'] == 'directory' else 'rm'} {one['path']}`" for one in obstacles
    ]
    return {"evidence": describe_obstacles(obstacles), "commands": " and ".join(commands)}


def _command(path: str) -> str:
    """Return the command that corrects the number of a file."""
    if path.startswith(_UVM):
        return "`nvidia-modprobe -c 0 -u`"
    if path.startswith(_CAPS):
        return "`find /proc/driver/nvidia/capabilities -type f -exec nvidia-modprobe -f {} \\;`"
    number = path.removeprefix("/dev/nvidia")
    if number == "-modeset":
        return "`nvidia-modprobe -m`"
    return f"`nvidia-modprobe -c {255 if number == 'ctl' else number}`"
