# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Observe, plan and prove GPU nodes from Python, without Ansible.

The decisions are those of the collection metal.gpu: this package only reaches machines and shows
what the collection's library says of them.
"""

from __future__ import annotations

from metal_gpu.fleet import Fleet
from metal_gpu.hosts import Host
from metal_gpu.inventory import InventoryError
from metal_gpu.ssh.settings import Settings, Unreachable

__all__ = ["Fleet", "Host", "InventoryError", "Settings", "Unreachable"]
