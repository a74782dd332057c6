# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about NFS mounts. No I/O."""

from __future__ import annotations

from typing import TypedDict, cast

from ansible_collections.metal.gpu.plugins.module_utils.probe.components.nfs import (
    UNITS,
    Mounted,
    Values,
)
from ansible_collections.metal.gpu.plugins.module_utils.read import systemd
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw


class Nfs(TypedDict):
    """Units of ours, what else mounts something, and what the kernel can mount."""

    units: dict[str, list[str]]  # the lines of our units, by path
    mixed: list[str]  # the paths of those that have lines of the admin, too
    unread: list[str]  # the names of those that systemd has not read since they were written
    others: list[str]  # the paths of other units that mount something
    fstab: list[str]
    mounted: list[Mounted]
    users: dict[str, list[str]]  # who keeps an NFS mount of ours that is unmounted, by path
    enabled: list[str]
    kernel: bool
    automount: bool


class Observed(TypedDict):
    """The mounts."""

    nfs: Nfs


def observe(raw: Raw) -> Observed:
    values = cast(Values, raw.values("nfs"))
    return {
        "nfs": {
            "units": values["units"],
            "mixed": values["mixed"],
            "unread": [
                name
                for name, shown in systemd.parse_show(raw.stdout(UNITS)).items()
                if shown.get("NeedDaemonReload") == "yes"
            ],
            "others": values["others"],
            "fstab": values["fstab"],
            "mounted": values["mounted"],
            "users": values["users"],
            "enabled": values["enabled"],
            "kernel": values["kernel"],
            "automount": values["automount"],
        }
    }
