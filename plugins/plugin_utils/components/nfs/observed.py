# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about NFS mounts. No I/O."""

from __future__ import annotations

from typing import cast

from ansible_collections.metal.gpu.plugins.module_utils.observed.machine import NfsPart
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.nfs import UNITS, Values
from ansible_collections.metal.gpu.plugins.module_utils.read import systemd
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw


def observe(raw: Raw) -> NfsPart:
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
