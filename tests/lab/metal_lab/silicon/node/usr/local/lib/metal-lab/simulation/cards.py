# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cards that somebody exchanges while the machine is off."""

from __future__ import annotations

import hashlib
import uuid

from .errors import FaultError, choose_gpu
from .state import Function, Kernel, Machine, Node


def swap(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU [ADDRESS]]: the next boot finds another card of its model there, or at ADDRESS."""
    address = choose_gpu(machine, arguments)
    place = arguments[1] if len(arguments) > 1 else address
    swaps = machine.content.setdefault("swaps", {})
    taken = {function["address"] for function in machine.content["functions"]} - {address}
    taken |= {other for former, other in swaps.items() if former != address}
    if place in taken:
        raise FaultError(f"{place} is taken")
    swaps[address] = place


def exchange(machine: Machine) -> None:
    """Exchange the cards, as the machine is off. A new card has no fault."""
    for address, place in machine.content.pop("swaps", {}).items():
        (function,) = (one for one in machine.all_gpus if one["address"] == address)
        _become_another(function)
        function["address"] = place
        faults = machine.content["faults"]
        machine.content["faults"] = [one for one in faults if one.get("address") != address]
    machine.content["functions"].sort(key=lambda function: function["address"])


def _become_another(function: Function) -> None:
    gpu = function["gpu"]
    former = gpu["uuid"].removeprefix("GPU-")
    gpu["uuid"] = f"GPU-{uuid.uuid5(uuid.UUID(former), 'the next card')}"
    digest = int(hashlib.sha256(gpu["uuid"].encode()).hexdigest(), 16)
    gpu["serial"] = f"{digest % 10**10 + 320 * 10**10:013d}"
