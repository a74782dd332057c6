# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Understand specifications of the Container Device Interface. No I/O.

Documents are already loaded from YAML or JSON.

Source: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# /run/cdi is the second one: systemd insists on /var/run being a link to /run.
DIRECTORIES = ("/etc/cdi", "/var/run/cdi")


def parse_kind(document: Mapping[str, Any]) -> str | None:
    """Return vendor and class of the devices, such as "nvidia.com/gpu"."""
    kind = document.get("kind")
    return kind if isinstance(kind, str) else None


def parse_devices(document: Mapping[str, Any]) -> list[str]:
    """Return the qualified names of the devices, in the specification's order."""
    devices = document.get("devices")
    return [
        f"{document.get('kind')}={device.get('name')}"
        for device in (devices if isinstance(devices, list) else ())
        if isinstance(device, Mapping)
    ]
