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

    units: dict[str, list[str]]  # lines of the units that the role `nfs_mounts` wrote, by path
    mixed: list[str]  # paths of those that have other lines, too
    unread: list[str]  # names of those that systemd has not read since they were written
    others: list[str]  # paths of other units that mount something
    fstab: list[str]  # places where `/etc/fstab` mounts something
    mounted: list[Mounted]  # file systems of disks and of the network, and automounts
    # processes that keep such a mount after the host unmounted it, by path
    users: dict[str, list[str]]
    enabled: list[str]  # automounts that start at boot
    kernel: bool  # whether the kernel can mount NFS 4, or has a module for it
    automount: bool  # whether the kernel can have automounts


class Observed(TypedDict):
    """The mounts."""

    nfs: Nfs  # what mounts NFS exports, and what the kernel can mount


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
