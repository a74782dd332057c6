# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The observation of a node on which every role has done its work, for tests that judge a part."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

_PLANS = Path(__file__).parents[1] / "fixtures/plans"
_VIRGIN = yaml.safe_load((_PLANS / "virgin.yml").read_text())
_DONE = yaml.safe_load((_PLANS / "done.yml").read_text())


def merge(base: Any, changes: Any) -> Any:
    """Merge tables, replace everything else."""
    if not isinstance(base, dict) or not isinstance(changes, dict):
        return changes
    return {**base, **{key: merge(base.get(key), value) for key, value in changes.items()}}


def node(**parts: Any) -> dict[str, Any]:
    """Return the observation, with other parts: tables are merged, a list takes another's place."""
    found = merge(merge(copy.deepcopy(_VIRGIN), copy.deepcopy(_DONE)), parts)
    assert isinstance(found, dict)
    return found


def virgin(**parts: Any) -> dict[str, Any]:
    """Return the observation of a node without anything from NVIDIA, likewise."""
    found = merge(copy.deepcopy(_VIRGIN), parts)
    assert isinstance(found, dict)
    return found


def bus(addresses: Iterable[str], device: str = "2330", **more: Any) -> list[dict[str, Any]]:
    """Return GPUs as they are on the PCI bus."""
    row = {"vendor": "10de", "device": device, "class": "0302", "driver": "nvidia"}
    return [{"address": one, **row, "numa_node": 0, **more} for one in addresses]
