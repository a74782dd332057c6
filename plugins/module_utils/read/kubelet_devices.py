# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse the kubelet's checkpoint of devices: what plugins registered, and which pod has what.

The file is internal to the kubelet, so its format can change. What does not have the known form is
left out.

Source: tests/recorded/kubelet_checkpoint.yml
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.mappings import section, text, texts

if TYPE_CHECKING:
    from collections.abc import Iterable

CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"

# NVIDIA's device plugin appends this to the UUID of a GPU that several pods share.
_REPLICA = "::"
_GPU = re.compile(r"GPU-[0-9A-Fa-f-]+")
_OF_GPUS = "nvidia.com/"


class Holding(TypedDict):
    """The devices of one resource that a container has."""

    pod: str  # its UID
    container: str
    resource: str
    devices: list[str]


class Devices(TypedDict):
    """What the kubelet knows about devices of NVIDIA; healthy ones by resource."""

    registered: dict[str, list[str]]  # ids of healthy devices by resource
    holdings: list[Holding]  # devices of containers


def parse_checkpoint(content: str) -> Devices | None:
    """Parse the checkpoint; None if it does not have the known form."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    data = section(document, "Data")
    registered = data.get("RegisteredDevices")
    if not isinstance(registered, dict):
        return None
    entries = data.get("PodDeviceEntries")
    return {
        "registered": {
            resource: sorted(texts(registered, resource))
            for resource in sorted(registered)
            if resource.startswith(_OF_GPUS)
        },
        "holdings": [
            {
                "pod": pod,
                "container": text(entry, "ContainerName") or "",
                "resource": resource,
                "devices": sorted(_devices(section(entry).get("DeviceIDs"))),
            }
            for entry in (entries if isinstance(entries, list) else ())
            if (pod := text(entry, "PodUID"))
            and (resource := text(entry, "ResourceName") or "").startswith(_OF_GPUS)
        ],
    }


def _devices(ids: object) -> Iterable[str]:
    """Return the ids of an entry: lists by NUMA node, or one list of a kubelet before 1.20."""
    if isinstance(ids, dict):
        return [device for node in ids for device in texts(ids, node)]
    return texts({"ids": ids}, "ids")


def gpu_uuid(device: str) -> str | None:
    """Return the UUID of the GPU that a device is, or is a replica of.

    None for anything else, such as a part of a GPU (MIG): nothing in its id names the GPU.
    """
    uuid = device.partition(_REPLICA)[0]
    return uuid if _GPU.fullmatch(uuid) else None
