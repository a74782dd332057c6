# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all files with faults need."""

from __future__ import annotations

from .state import Machine


class FaultError(Exception):
    """A fault cannot be injected."""


def choose_gpu(machine: Machine, arguments: list[str]) -> str:
    """Address of a GPU. The first argument is its number in bus order, 0 by default."""
    number = int(arguments[0]) if arguments else 0
    if not 0 <= number < len(machine.all_gpus):
        raise FaultError(f"GPU {number} does not exist, only 0 to {len(machine.all_gpus) - 1}")
    return str(machine.all_gpus[number]["address"])
