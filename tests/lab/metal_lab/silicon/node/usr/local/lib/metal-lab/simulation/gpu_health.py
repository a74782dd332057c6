# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that a GPU reports of itself, and that leave it working.

The report is that of `nvidia-smi -q -x`; nvml/machine.h lists the keys.
"""

from __future__ import annotations

from .errors import FaultError, choose_gpu
from .state import Kernel, Machine, Node

# nvml.h
RECOVERY_ACTIONS = {"reset": 1, "reboot": 2, "drain-p2p": 3, "drain-and-reset": 4}
CLOCK_REASONS = {
    "sw-power-cap": 0x4,
    "sw-thermal": 0x20,
    "hw-thermal": 0x48,
    "hw-power-brake": 0x88,
}
COMPUTE_MODES = {"default": 0, "prohibited": 2, "exclusive-process": 3}
REMAP_PENDING, REMAP_FAILED = 1, 2
PRE_AMPERE = ("maxwell", "pascal", "volta", "turing")


def _report(machine: Machine, arguments: list[str], **values: int) -> None:
    machine.add_fault("health", address=choose_gpu(machine, arguments), values=values)


def _number(arguments: list[str], default: int) -> int:
    return int(arguments[1]) if len(arguments) > 1 else default


def _word(arguments: list[str], words: dict[str, int], default: str) -> int:
    word = arguments[1] if len(arguments) > 1 else default
    if word not in words:
        raise FaultError(f"{word} is not one of {', '.join(words)}")
    return words[word]


def _check_rows(machine: Machine, arguments: list[str], *, remaps: bool) -> None:
    address = choose_gpu(machine, arguments)
    (gpu,) = (one["gpu"] for one in machine.all_gpus if one["address"] == address)
    if (gpu["architecture"] not in PRE_AMPERE) is not remaps:
        raise FaultError(f"{gpu['name']} {'retires pages' if remaps else 'remaps rows'}")


def ecc(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU [COUNT]]: it reports memory errors that it could not correct, 1 by default."""
    _report(machine, arguments, ecc=_number(arguments, 1))


def ecc_sram_threshold(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: it reports more SRAM errors than the threshold; only Ampere and newer."""
    _check_rows(machine, arguments, remaps=True)
    _report(machine, arguments, sram_threshold=1)


def remap_pending(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: a spare row replaces defective memory at the next reset; only Ampere and newer."""
    _check_rows(machine, arguments, remaps=True)
    _report(machine, arguments, remap=REMAP_PENDING)


def remap_failed(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: no spare row is left for defective memory; only Ampere and newer."""
    _check_rows(machine, arguments, remaps=True)
    _report(machine, arguments, remap=REMAP_FAILED)


def pages_pending(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: defective pages of memory are retired at the next reset; only before Ampere."""
    _check_rows(machine, arguments, remaps=False)
    _report(machine, arguments, pages=1)


def recovery_action(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU [WORD]]: the driver asks for reset (default), reboot, drain-p2p or drain-and-reset."""
    _report(machine, arguments, recovery=_word(arguments, RECOVERY_ACTIONS, "reset"))


def throttle(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU [REASON]]: slow: hw-thermal (default), hw-power-brake, sw-thermal, sw-power-cap."""
    _report(machine, arguments, clocks=_word(arguments, CLOCK_REASONS, "hw-thermal"))


def pcie_width(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU [WIDTH]]: its PCIe link uses fewer lanes than 16, 8 by default."""
    _report(machine, arguments, width=_number(arguments, 8))


def pcie_gen(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU [GENERATION]]: its slot supports only this PCIe generation, 2 by default."""
    _report(machine, arguments, generation=_number(arguments, 2))


def compute_mode(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU [MODE]]: its compute mode: prohibited (default), exclusive-process, default."""
    _report(machine, arguments, compute=_word(arguments, COMPUTE_MODES, "prohibited"))


def mig_pending(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: MIG is switched on, from the next reset on."""
    _report(machine, arguments, mig_pending=1)


def xml_cut(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """`nvidia-smi -q -x` ends after the first GPU."""
    machine.add_fault("nvidia-smi", word="xml=cut")


def xml_garbage(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """`nvidia-smi -q -x` prints something that is not XML."""
    machine.add_fault("nvidia-smi", word="xml=noise")


def xml_hang(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """`nvidia-smi -q -x` hangs; the rest of nvidia-smi works."""
    machine.add_fault("nvidia-smi", word="xml=stall")


FAULTS = {
    "ecc": ecc,
    "ecc-sram-threshold": ecc_sram_threshold,
    "remap-pending": remap_pending,
    "remap-failed": remap_failed,
    "pages-pending": pages_pending,
    "recovery-action": recovery_action,
    "throttle": throttle,
    "pcie-width": pcie_width,
    "pcie-gen": pcie_gen,
    "compute-mode": compute_mode,
    "mig-pending": mig_pending,
    "xml-cut": xml_cut,
    "xml-garbage": xml_garbage,
    "xml-hang": xml_hang,
}
