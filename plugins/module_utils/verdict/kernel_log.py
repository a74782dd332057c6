# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Judge what the driver logged about GPUs and NVSwitches since it was loaded. No I/O.

Programs that make mistakes cause Xid errors on every healthy node: these are no finding. An error
whose number is not known is reported, and is no failure. A GPU that nvidia-smi already shows as
lost or faulty has what was logged as evidence in that finding.

Source: tests/recorded/xids.yml
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read import xids
from ansible_collections.metal.gpu.plugins.module_utils.read.kernel_log import (
    LOST,
    SXID,
    is_fatal,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ansible_collections.metal.gpu.plugins.plugin_utils.components.kernel_log.observed import (
        KernelEvent,
    )
    from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node

_SHOWN = 3
_OFF_THE_BUS = xids.XIDS[xids.OFF_THE_BUS]
# The worst tier first. Errors of the tier INFORMATION are never shown.
_ORDER = (xids.HARDWARE, xids.RESET, xids.UNKNOWN, xids.APPLICATION)
_BROKEN = (xids.HARDWARE, xids.RESET)

_RESET = "drain the node, and run `nvidia-smi --gpu-reset -i {address}` on it, or reboot it"
_REBOOT = "drain the node, and reboot it"
_MECHANICS = "drain the node, switch it off, and check the seating of the card and its power cables"
# By NVIDIA's action, the strongest one first.
_REMEDIES = {
    "CHECK_MECHANICALS": _MECHANICS,
    "RESTART_BM": _REBOOT,
    "RESTART_VM": _REBOOT,
    "CONTACT_SUPPORT": _REBOOT,
    "WORKFLOW_NVLINK_ERR": _REBOOT,
    "WORKFLOW_XID_48": _RESET,
    "RESET_GPU": _RESET,
}
_AGAIN = {
    xids.HARDWARE: "if the error returns, replace the GPU",
    xids.RESET: "if the error returns, search for its number in NVIDIA's Xid catalogue",
}


def judge_kernel_log(
    host: str, node: Node, named: Collection[str | None], *, is_explained: bool
) -> Iterator[dict[str, str]]:
    """Judge the errors of GPUs that are not in `named`, because another finding names them.

    `is_explained` is whether nothing needs an explanation, so that a log without an answer is no
    finding.
    """
    log = node["kernel_log"]
    gpus = [one for one in log["events"] if one["source"] != SXID]
    for address in dict.fromkeys(one["address"] for one in gpus):
        if address not in named:
            yield from _judge_gpu(host, node, address)
    yield from _judge_switches(host, node)
    if not log["sources"] and log["error"] and not is_explained:
        yield finding("KERNEL_LOG_UNREADABLE", host, error=log["error"])


def quote_log(node: Node, addresses: Collection[str]) -> str:
    """Return what the driver logged about these GPUs, as the end of a message."""
    texts = [f"{address}: {text}" for address in addresses if (text := _errors(node, address))]
    return f"; the driver logged about {'; about '.join(texts)}" if texts else ""


def _events(node: Node, address: str) -> list[KernelEvent]:
    """Return the errors of a GPU that are worth showing, the worst and newest first."""
    events = [
        one
        for one in node["kernel_log"]["events"]
        if one["source"] != SXID and one["address"] == address and _tier(one) in _ORDER
    ]
    return sorted(events, key=lambda one: (_ORDER.index(_tier(one)), -one["last"]))


def _meaning(event: KernelEvent) -> xids.Xid:
    return _OFF_THE_BUS if event["number"] is None else xids.look_up(event["number"])


def _tier(event: KernelEvent) -> str:
    meaning = _meaning(event)
    if meaning.is_graded and not is_fatal(event):
        return xids.INFORMATION
    return meaning.tier


def _judge_gpu(host: str, node: Node, address: str) -> Iterator[dict[str, str]]:
    events = _events(node, address)
    broken = [one for one in events if _tier(one) in _BROKEN]
    actions = [_meaning(one).action for one in broken]
    code = node["kernel_log"]["recovery"].get(address)
    if code is not None:
        # A reboot does what newer drivers may ask for.
        actions.append(xids.RECOVERY.get(code, "RESTART_BM"))
    gpu, errors = _name(node, address), _errors(node, address)
    if actions:
        remedies = (text for action, text in _REMEDIES.items() if action in actions)
        remedy = next(remedies, _REBOOT).format(address=address)
        again = _AGAIN[_tier(broken[0]) if broken else xids.RESET]
        yield finding("GPU_ERROR_LOGGED", host, gpu=gpu, errors=errors, remedy=f"{remedy}; {again}")
    elif any(_tier(one) == xids.UNKNOWN for one in events):
        yield finding("XID_UNKNOWN", host, gpu=gpu, errors=errors)


def _errors(node: Node, address: str) -> str:
    """Return what the driver logged about a GPU, and what it asks for."""
    texts = [_describe(events)] if (events := _events(node, address)) else []
    if address in node["kernel_log"]["recovery"]:
        texts.append(_request(node, address))
    return "; ".join(texts)


def _request(node: Node, address: str) -> str:
    """Return the words of the driver about what the GPU needs."""
    lines = (
        one["line"]
        for one in node["kernel_log"]["events"]
        if (one["address"], one["number"]) == (address, xids.RECOVERY_CHANGED)
    )
    words = next(lines, "").rpartition("(")[2].partition(")")[0]
    return f"the driver asks for: {words or 'a recovery action'}"


def _judge_switches(host: str, node: Node) -> Iterator[dict[str, str]]:
    """Judge the NVSwitches. The links to a GPU that fell off the bus are down, too."""
    log = node["kernel_log"]["events"]
    is_lost = any(one["source"] == LOST or one["number"] == xids.OFF_THE_BUS for one in log)
    switches: dict[str, list[KernelEvent]] = {}
    for one in log:
        if one["source"] != SXID or not (is_fatal(one) or one["number"] in xids.FATAL_SXIDS):
            continue
        if not (is_lost and one["number"] == xids.LINKS_DOWN):
            switches.setdefault(one["address"], []).append(one)
    for address, events in switches.items():
        newest = sorted(events, key=lambda one: -one["last"])
        yield finding("NVSWITCH_ERROR_LOGGED", host, address=address, errors=_describe(newest))


def _name(node: Node, address: str) -> str:
    """Name a GPU by its PCI address and its UUID, as far as it is known."""
    uuids = {gpu["pci_address"]: gpu["uuid"] for gpu in node["nvml"]["devices"]}
    uuid = uuids.get(address) or node["kernel_log"]["uuids"].get(address)
    return f"the GPU {address}" + (f" ({uuid})" if uuid else "")


def _describe(events: Iterable[KernelEvent]) -> str:
    texts = [_describe_one(one) for one in events]
    more = [f"and {len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
    return ", ".join([*texts[:_SHOWN], *more])


def _describe_one(event: KernelEvent) -> str:
    if event["source"] == SXID:
        name = f"SXid {event['number']}"
    elif event["number"] is None:
        name = _OFF_THE_BUS.meaning
    else:
        name = f"Xid {event['number']} ({_meaning(event).meaning})"
    lines = "once" if event["count"] == 1 else f"{event['count']} times"
    return f"{name} {lines}, last at {event['last_date']}: {event['line']}"
