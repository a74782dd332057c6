# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Judge what the driver logged about GPUs and NVSwitches since it was loaded.

Programs that make mistakes cause Xid errors on every healthy node: these are no finding. An error
whose number is not known is reported, and is no failure. A GPU that nvidia-smi already shows as
lost or faulty has what was logged as evidence in that finding. The driver asks for a reboot at
every GPU of the machine: only the GPUs with errors of their own are accused.

Source: tests/recorded/xids.yml
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read import driver_words, xids
from ansible_collections.metal.gpu.plugins.module_utils.read.kernel_events import (
    SXID,
    fatal_of_switches,
    meaning,
    tier,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.health_words import quote_health

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ansible_collections.metal.gpu.plugins.module_utils.observed.gpus import KernelEvent
    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.module_utils.read.kernel_events import Event

_SHOWN = 3
# The worst tier first. Errors of the tier INFORMATION are never shown.
_ORDER = (xids.HARDWARE, xids.RESET, xids.UNKNOWN, xids.APPLICATION)
_BROKEN = (xids.HARDWARE, xids.RESET)

# What ends the error in the log, too: without NVSwitches, nothing there shows that a GPU was reset.
_RESET = (
    "drain the node, and reboot it; or reset the GPU (`nvidia-smi --gpu-reset -i {address}`, "
    "DaemonSets that use it must stop first) and load the driver again"
)
_RESET_ALL = (
    "drain the node, and reboot it; or reset all its GPUs (`nvidia-smi --gpu-reset`, DaemonSets "
    "that use them must stop first)"
)
_REBOOT = "drain the node, and reboot it"
_MECHANICS = "drain the node, switch it off, and check the seating of the card and its power cables"
# By NVIDIA's action, the strongest one first.
_REMEDIES = {
    "CHECK_MECHANICALS": _MECHANICS,
    "RESTART_BM": _REBOOT,
    "RESTART_VM": _REBOOT,
    "CONTACT_SUPPORT": _REBOOT,
    "WORKFLOW_NVLINK_ERR": _REBOOT,
    "WORKFLOW_NVLINK5_ERR": _REBOOT,
    "WORKFLOW_XID_48": _RESET,
    "RESET_GPU": _RESET,
}
_WHEN = " (see the time above)"
_AGAIN = {
    xids.HARDWARE: f"if the error is logged again after that{_WHEN}, replace the GPU",
    xids.RESET: (
        f"if the error is logged again after that{_WHEN}, search for its number in NVIDIA's Xid "
        "catalogue"
    ),
}


def judge_kernel_log(
    host: str, node: Node, named: Collection[str | None], *, is_needed: bool
) -> Iterator[dict[str, str]]:
    """Judge the errors of GPUs that are not in `named`, because another finding names them.

    `is_needed` is whether another finding needs an explanation, so that a log that was not read, or
    only in part, or not kept as a whole, is a finding.
    """
    log = node["kernel_log"]
    events = [one["address"] for one in log["events"] if one["source"] != SXID]
    gpus = list(dict.fromkeys([*events, *log["recovery"]]))
    for address in gpus:
        if address not in named:
            yield from _judge_gpu(host, node, address)
    asking = [one for one in gpus if log["recovery"].get(one) == xids.REBOOT_REQUIRED]
    if asking and not has_cause(node, asking, named):
        yield _judge_node(host, node, asking)
    yield from _judge_switches(host, node)
    if log["error"] and is_needed:
        extent = "was read only in part, and older lines are missing"
        if not log["sources"]:
            extent = "cannot be read"
        yield finding("KERNEL_LOG_UNREADABLE", host, extent=extent, error=log["error"])
    if log["unlisted"] and is_needed:
        extent = "has more different errors than are kept"
        left_out = f"{log['unlisted']} lines are left out"
        yield finding("KERNEL_LOG_UNREADABLE", host, extent=extent, error=left_out)


def has_cause(node: Node, asking: Collection[str], named: Collection[str | None]) -> bool:
    """Tell whether a GPU is known for which the driver asks for a reboot at these GPUs.

    A GPU in `named` is the cause if the driver asks there, too, or if it does not report anything.
    """
    reported = {gpu["pci_address"] for gpu in node["health"]["gpus"]}
    if any(one in asking or one not in reported for one in named):
        return True
    log = node["kernel_log"]["events"]
    return any(_broken(node, one["address"]) for one in log if one["source"] != SXID)


def without_ignored(node: Node) -> Node:
    """Return the node without errors in spite of which NVIDIA's device plugin offers a GPU."""
    log = node["kernel_log"]
    events = [
        one
        for one in log["events"]
        if one["source"] != SXID and one["number"] not in xids.IGNORED_BY_PLUGIN
    ]
    return {**node, "kernel_log": {**log, "events": events}}


def quote_log(node: Node, addresses: Collection[str]) -> str:
    """Return what the driver logged about these GPUs, as the end of a message."""
    logged = {
        one: ", ".join(filter(None, (_errors(node, one), _words(node, one)))) for one in addresses
    }
    texts = [f"{address}: {text}" for address, text in logged.items() if text]
    return f"; the driver logged about {'; about '.join(texts)}" if texts else ""


def _words(node: Node, address: str) -> str:
    """Return why the driver did not start a GPU, in its words."""
    said = node["kernel_log"]["words"].get(address, [])
    telling = [one for one in said if not driver_words.of_kind(one["kind"]).is_generic]
    return " / ".join(one["line"].rstrip(".") for one in telling or said)


def _events(node: Node, address: str) -> list[KernelEvent]:
    """Return the errors of a GPU that are worth showing, the worst and newest first.

    The driver logs a GPU that fell off the bus as Xid 79, and in another line without a number.
    """
    events = [
        one
        for one in node["kernel_log"]["events"]
        if one["source"] != SXID and one["address"] == address and tier(one) in _ORDER
    ]
    if any(one["number"] == xids.OFF_THE_BUS for one in events):
        events = [one for one in events if one["number"] is not None]
    return sorted(events, key=lambda one: (_ORDER.index(tier(one)), -one["last"]))


def _broken(node: Node, address: str) -> list[KernelEvent]:
    return [one for one in _events(node, address) if tier(one) in _BROKEN]


def logged_actions(node: Node, address: str) -> list[str | None]:
    """Return what NVIDIA says to do after the errors of a GPU: nothing if programs made mistakes.

    The driver asks for a reboot at every GPU, so that counts only for GPUs with errors of their
    own.
    """
    broken = _broken(node, address)
    actions = [meaning(one).action for one in broken]
    code = node["kernel_log"]["recovery"].get(address)
    if broken or code != xids.REBOOT_REQUIRED:
        actions.append(None if code is None else xids.RECOVERY.get(code))
    return [action for action in actions if action]


def describe_remedy(node: Node, address: str, actions: Collection[str | None]) -> str:
    """Return what to do after actions of NVIDIA's catalogue: the strongest one."""
    remedy = _strongest(actions)
    if remedy == _RESET and node["fabric"]["switches"]:
        remedy = _RESET_ALL
    return remedy.format(address=address)


def remedy_of_line(event: Event) -> str:
    """Return what to do after an error of a GPU of which only the line is known."""
    found = meaning(event)
    remedy = _strongest([found.action]).format(address=event["address"])
    return f"{remedy}; {_AGAIN[tier(event)].replace(_WHEN, '')}"


def _strongest(actions: Collection[str | None]) -> str:
    return next((text for action, text in _REMEDIES.items() if action in actions), _REBOOT)


def _judge_gpu(host: str, node: Node, address: str) -> Iterator[dict[str, str]]:
    broken = _broken(node, address)
    actions = logged_actions(node, address)
    code = node["kernel_log"]["recovery"].get(address)
    gpu, errors = name_gpus(node, address), _errors(node, address)
    if actions:
        again = _AGAIN[tier(broken[0]) if broken else xids.RESET]
        remedy = f"{describe_remedy(node, address, actions)}; {again}"
        errors += quote_health(node, [address])
        yield finding("GPU_ERROR_LOGGED", host, gpu=gpu, errors=errors, remedy=remedy)
    elif (code is not None and xids.RECOVERY.get(code) is None) or any(
        tier(one) == xids.UNKNOWN for one in _events(node, address)
    ):
        yield finding("XID_UNKNOWN", host, gpu=gpu, errors=errors)


def _judge_node(host: str, node: Node, addresses: list[str]) -> dict[str, str]:
    """Report that the machine needs a reboot, and that no GPU is known as the cause."""
    return finding(
        "GPU_ERROR_LOGGED",
        host,
        gpu=name_gpus(node, *addresses),
        errors="; ".join(dict.fromkeys(_request(node, address) for address in addresses)),
        remedy=f"{_REBOOT}; {_AGAIN[xids.RESET]}",
    )


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
    for address, events in fatal_of_switches(node["kernel_log"]["events"]).items():
        yield finding("NVSWITCH_ERROR_LOGGED", host, address=address, errors=_describe(events))


def name_gpus(node: Node, *addresses: str) -> str:
    """Name GPUs by their PCI addresses and their UUIDs, as far as they are known."""
    uuids = {gpu["pci_address"]: gpu["uuid"] for gpu in node["nvml"]["devices"]}
    names = []
    for address in addresses:
        uuid = uuids.get(address) or node["kernel_log"]["uuids"].get(address)
        names.append(address + (f" ({uuid})" if uuid else ""))
    return f"the GPU{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _describe(events: Iterable[KernelEvent]) -> str:
    texts = [_describe_one(one) for one in events]
    more = [f"and {len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
    return ", ".join([*texts[:_SHOWN], *more])


def _describe_one(event: KernelEvent) -> str:
    if event["source"] == SXID:
        name = f"SXid {event['number']}"
    elif event["number"] is None:
        name = meaning(event).meaning
    else:
        name = f"Xid {event['number']} ({meaning(event).meaning})"
    lines = "once" if event["count"] == 1 else f"{event['count']} times"
    return f"{name} {lines}, last at {event['last_date']}: {event['line'].rstrip('.')}"
