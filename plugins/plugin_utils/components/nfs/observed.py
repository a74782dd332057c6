# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about NFS mounts."""

from __future__ import annotations

from typing import cast

from ansible_collections.metal.gpu.plugins.module_utils.observed.machine import NfsPart
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.nfs import UNITS, Values
from ansible_collections.metal.gpu.plugins.module_utils.read import systemd
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw


def observe(raw: Raw) -> NfsPart:
    shown = systemd.parse_show(raw.stdout(UNITS))
    unread = [name for name, unit in shown.items() if unit.get("NeedDaemonReload") == "yes"]
    return {"nfs": {**cast(Values, raw.values("nfs")), "unread": unread}}
