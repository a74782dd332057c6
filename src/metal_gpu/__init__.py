# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Observe, plan and prove GPU nodes from Python, without Ansible.

The decisions are those of the collection metal.gpu: this package only reaches machines and shows
what the collection's library says of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metal_gpu.fleet import Fleet
    from metal_gpu.hosts import Host
    from metal_gpu.inventory import InventoryError
    from metal_gpu.ssh.settings import Settings, Unreachable

__all__ = ["Fleet", "Host", "InventoryError", "Settings", "Unreachable"]

# `metal-gpu --help` needs none of them, and would wait for all.
_PLACES = {
    "Fleet": "fleet",
    "Host": "hosts",
    "InventoryError": "inventory",
    "Settings": "ssh.settings",
    "Unreachable": "ssh.settings",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
