# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Say what is wrong with a GPU by its own report, for every finding that names the GPU.

Errors that the GPU has corrected, spare rows that are in use, and errors before the last reset are
the history of a GPU that works.

Source: tests/recorded/nvidia_smi_xml.yml
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.read import xids
from ansible_collections.metal.gpu.plugins.module_utils.read.kernel_events import SXID, tier
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi_xml import NO_ACTION

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi_xml import Health

# What to do, besides the actions of NVIDIA's Xid catalogue.
REPLACE = "REPLACE"
REBOOT = "RESTART_BM"
# The words of the driver, without case. Those of which nobody has seen the spelling are not here.
_ACTIONS = {
    "reset": "RESET_GPU",
    "gpu reset": "RESET_GPU",
    "gpu reset required": "RESET_GPU",
    "drain and reset": "RESET_GPU",
    "reboot": REBOOT,
    "node reboot required": REBOOT,
}
DRAIN_P2P = "drain p2p"
_MIG_ON = "Enabled"

# The driver logs these when a row is remapped, and when an error ended one program only.
_REMAPPED = (63, 94)
# Of errors that break nothing.
_HARMLESS = (xids.INFORMATION, xids.APPLICATION)


class Fault(NamedTuple):
    """Why a GPU cannot be relied on, and what to do."""

    words: str
    action: str


def faults(node: Node, gpu: Health) -> Iterator[Fault]:
    """Yield why a GPU cannot be relied on."""
    if gpu["remap_failed"]:
        yield Fault("row remapping failed, so defective memory stays in use", REPLACE)
    if gpu["sram_threshold_exceeded"]:
        yield Fault("more uncorrected SRAM errors than NVIDIA's threshold", REPLACE)
    if gpu["unrepairable_memory"]:
        yield Fault("memory that cannot be repaired", REPLACE)
    if action := _ACTIONS.get((gpu["recovery_action"] or "").lower()):
        yield Fault(f"the driver asks for: {gpu['recovery_action']}", action)
    # The errors for which a row or a page is replaced at the next reset stay in the counter. These
    # are errors of DRAM.
    is_handled = gpu["remap_pending"] or gpu["pages_pending"] or _is_remapped(node, gpu)
    errors, memory = gpu["uncorrected"], "memory"
    if is_handled:
        errors, memory = gpu["uncorrected_sram"], "SRAM"
    if errors:
        yield Fault(f"uncorrected {memory} errors since the last reset: {errors}", "RESET_GPU")


def asks_for_reboot(gpu: Health) -> bool:
    """Tell whether the driver asks for a reboot, which it does at every GPU of the machine."""
    return _ACTIONS.get((gpu["recovery_action"] or "").lower()) == REBOOT


def is_empty(gpu: Health) -> bool:
    """Tell whether MIG mode is on and no program can compute, because there is no instance."""
    return gpu["mig"] == _MIG_ON and gpu["mig_instances"] == []


def advice(gpu: Health) -> str | None:
    """Return what the driver asks for, if that is no repair of the GPU, or not known."""
    action = gpu["recovery_action"]
    is_fault = action in (None, NO_ACTION) or action.lower() in _ACTIONS
    return None if is_fault else action


def _is_remapped(node: Node, gpu: Health) -> bool:
    """Tell whether the kernel log says that a row was remapped, of which MIG hides the report."""
    if gpu["mig"] != _MIG_ON or (gpu["remap_pending"], gpu["remap_failed"]) != (None, None):
        return False
    address, log = gpu["pci_address"], node["kernel_log"]
    events = [one for one in log["events"] if one["address"] == address and one["source"] != SXID]
    others = [one for one in events if one["number"] not in _REMAPPED]
    return (
        len(others) < len(events)
        and all(tier(one) in _HARMLESS for one in others)
        and address not in log["recovery"]
    )


def pending(node: Node, gpu: Health) -> Iterator[str]:
    """Yield what the next reset of a GPU does, which works until then."""
    if gpu["uncorrected"] and _is_remapped(node, gpu):
        yield "spare rows replace defective memory (by the kernel log, as MIG is on)"
    if gpu["remap_pending"]:
        yield "spare rows replace defective memory"
    if gpu["pages_pending"]:
        yield "defective pages of memory are retired"
    for part in gpu["repairs_pending"]:
        yield f"a {part.upper() if part == 'tpc' else 'memory channel'} is repaired"


def quote_health(node: Node, addresses: Collection[str]) -> str:
    """Return what these GPUs report of themselves, as the end of a message."""
    texts = []
    for gpu in node["health"]["gpus"]:
        if gpu["pci_address"] in addresses and (words := describe(node, gpu)):
            texts.append(f"{gpu['pci_address']}: {words}")
    return f"; `nvidia-smi -q` reports about {'; about '.join(texts)}" if texts else ""


def describe(node: Node, gpu: Health) -> str:
    """Return everything that is wrong with a GPU or that waits for a reset."""
    words = [one.words for one in faults(node, gpu)]
    if action := advice(gpu):
        words.append(f"the driver asks for: {action}")
    if waiting := list(pending(node, gpu)):
        words.append(f"at the next reset, {' and '.join(waiting)}")
    return ", ".join(words)
