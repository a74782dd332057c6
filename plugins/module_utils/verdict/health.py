# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Judge what the GPUs report of themselves.

A GPU that another finding names has its report as evidence there. Many odd values are normal: see
docs/decisions/042-health-from-xml.md for what is not judged, and why.

Source: tests/recorded/nvidia_smi_xml.yml
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read import xids
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi_xml import VGPU
from ansible_collections.metal.gpu.plugins.module_utils.verdict import health_words
from ansible_collections.metal.gpu.plugins.module_utils.verdict.kernel_log import (
    describe_remedy,
    has_cause,
    logged_actions,
    name_gpus,
    quote_log,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi_xml import Health

# The hardware slows down a GPU for these, whatever its load is. "hw_slowdown" stands for both.
_SLOWDOWNS = {
    "hw_thermal_slowdown": "too hot",
    "hw_power_brake_slowdown": "its power supply asks for less load",
}
_SLOWDOWN = "hw_slowdown"
_PROHIBITED, _DEFAULT = "Prohibited", "Default"
_REPLACE = (
    "drain the node, run NVIDIA's field diagnostic on the GPU, and replace the GPU if the "
    "diagnostic fails"
)
_DRAIN_P2P = (
    "end the programs that copy between GPUs of this node; if the driver still asks for it, drain "
    "the node, and reboot it"
)
_REBOOT = (
    "drain the node, and reboot it; if `nvidia-smi -q` reports it again after that, search the "
    "kernel log for the GPU that causes it"
)
_UNKNOWN_ACTION = (
    "search for these words in the documentation of NVIDIA's driver; if programs fail on this GPU, "
    "drain the node, and reboot it"
)


def judge_faults(
    host: str, node: Node, named: Collection[str | None]
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the addresses of GPUs that cannot be relied on, with the finding.

    GPUs in `named` are named by another finding. The driver asks for a reboot at every GPU: that
    alone is no fault of a GPU.
    """
    for gpu in node["health"]["gpus"]:
        address = gpu["pci_address"]
        found = list(health_words.faults(node, gpu))
        logged = logged_actions(node, address)
        is_own = logged or any(one.action != health_words.REBOOT for one in found)
        if not found or address in named or not is_own:
            continue
        actions = [one.action for one in found] + logged
        yield (
            address,
            finding(
                "GPU_UNRELIABLE",
                host,
                gpu=name_gpus(node, address),
                evidence=health_words.describe(node, gpu),
                log=quote_log(node, [address]),
                remedy=_remedy(node, address, actions),
            ),
        )


def _remedy(node: Node, address: str, actions: Collection[str | None]) -> str:
    if health_words.REPLACE in actions:
        return _REPLACE
    way = describe_remedy(node, address, actions)
    return f"{way}; if `nvidia-smi -q` reports it again after that, replace the GPU"


def judge_machine(host: str, node: Node, named: Collection[str | None]) -> Iterator[dict[str, str]]:
    """Yield that the machine needs a reboot, unless a GPU or the kernel log says why."""
    asking = [gpu for gpu in node["health"]["gpus"] if health_words.asks_for_reboot(gpu)]
    if not asking or has_cause(node, [gpu["pci_address"] for gpu in asking], named):
        return
    # If the driver has logged it, too, that is the finding.
    if xids.REBOOT_REQUIRED in node["kernel_log"]["recovery"].values():
        return
    actions = dict.fromkeys(gpu["recovery_action"] for gpu in asking)
    yield finding(
        "GPU_UNRELIABLE",
        host,
        gpu=name_gpus(node, *(gpu["pci_address"] for gpu in asking)),
        evidence=f"the driver asks for: {', '.join(filter(None, actions))}",
        log="",
        remedy=_REBOOT,
    )


def judge_notices(host: str, node: Node, named: Collection[str | None]) -> Iterator[dict[str, str]]:
    """Yield what else an admin should know, and what stops programs on a GPU that works."""
    gpus = [gpu for gpu in node["health"]["gpus"] if gpu["pci_address"] not in named]
    waiting = _group(gpus, lambda gpu: " and ".join(health_words.pending(node, gpu)))
    for words, addresses in waiting.items():
        remedy = describe_remedy(node, ",".join(addresses), ["RESET_GPU"])
        names = name_gpus(node, *addresses)
        yield finding("GPU_RESET_DUE", host, gpus=names, words=words, remedy=remedy)
    # What is also logged has a finding already.
    logged = node["kernel_log"]["recovery"]
    asking = [gpu for gpu in gpus if gpu["pci_address"] not in logged]
    for words, addresses in _group(asking, lambda gpu: health_words.advice(gpu) or "").items():
        is_known = words.lower() == health_words.DRAIN_P2P
        yield finding(
            "GPU_ACTION_DUE",
            host,
            gpus=name_gpus(node, *addresses),
            words=words,
            remedy=_DRAIN_P2P if is_known else _UNKNOWN_ACTION,
        )
    for words, addresses in _group(gpus, _slowdown).items():
        yield finding("GPU_THROTTLED", host, gpus=name_gpus(node, *addresses), reason=words)
    for words, addresses in _group(gpus, _mig).items():
        yield finding("MIG_MODE_PENDING", host, gpus=name_gpus(node, *addresses), modes=words)
    empty = [gpu["pci_address"] for gpu in gpus if health_words.is_empty(gpu)]
    if empty:
        yield finding("MIG_EMPTY", host, gpus=name_gpus(node, *empty))
    modes = _group(gpus, lambda gpu: gpu["compute_mode"] or "")
    for mode, addresses in modes.items():
        if mode != _DEFAULT:
            code = "COMPUTE_PROHIBITED" if mode == _PROHIBITED else "COMPUTE_EXCLUSIVE"
            yield finding(code, host, gpus=name_gpus(node, *addresses), mode=mode)
    for words, addresses in _group(gpus, _unlicensed).items():
        yield finding("VGPU_UNLICENSED", host, gpus=name_gpus(node, *addresses), words=words)
    for evidence in _links(gpus):
        yield finding("PCIE_LINK_DIFFERS", host, evidence=evidence)
    yield from _judge_report(host, node, named)


def _group(gpus: Iterable[Health], words: Callable[[Health], str]) -> dict[str, list[str]]:
    """Return the addresses of the GPUs of which there is something to say, by the words."""
    found: dict[str, list[str]] = {}
    for gpu in gpus:
        if said := words(gpu):
            found.setdefault(said, []).append(gpu["pci_address"])
    return found


def _slowdown(gpu: Health) -> str:
    reasons = [words for name, words in _SLOWDOWNS.items() if name in gpu["clocks"]]
    if not reasons and _SLOWDOWN in gpu["clocks"]:
        return "HW slowdown, without a reason"
    return " and ".join(reasons)


def _unlicensed(gpu: Health) -> str:
    """Return the words about the license of a virtual GPU that has none."""
    words = gpu["license"] or ""
    return words if gpu["virtualization"] == VGPU and words.startswith("Unlicensed") else ""


def _mig(gpu: Health) -> str:
    modes = gpu["mig"], gpu["mig_pending"]
    return "" if None in modes or modes[0] == modes[1] else f"{modes[0]} now, {modes[1]} then"


def _links(gpus: Iterable[Health]) -> Iterator[str]:
    """Yield which GPUs have a worse link than most GPUs of the same model in the node.

    Of half the GPUs, a narrower link is how the machine is wired. Idle GPUs lower the generation of
    their link, but not what the link supports.
    """
    models: dict[str, list[Health]] = {}
    for gpu in gpus:
        if gpu["model"]:
            models.setdefault(gpu["model"], []).append(gpu)
    for siblings in models.values():
        for words, read in _LINKS.items():
            values = {gpu["pci_address"]: read(gpu) for gpu in siblings}
            known = [value for value in values.values() if value is not None]
            usual = max(known, key=lambda value: (known.count(value), value), default=0)
            for address, value in values.items():
                is_alone = len(known) == 2 or known.count(usual) * 2 > len(known)
                if value is not None and value < usual and is_alone:
                    yield words.format(address=address, value=value, usual=usual)


_LINKS: dict[str, Callable[[Health], int | None]] = {
    "{address} uses {value} lanes, and its siblings use {usual}": (
        lambda gpu: gpu["link"]["width"]
    ),
    "{address} supports PCIe generation {value} in its slot, and its siblings {usual}": (
        lambda gpu: gpu["link"]["max_generation"]
    ),
}


def _judge_report(host: str, node: Node, named: Collection[str | None]) -> Iterator[dict[str, str]]:
    """Yield which GPUs did not report, unless the first query of nvidia-smi already says why."""
    if not node["nvml"]["complete"]:
        return
    reported = {gpu["pci_address"] for gpu in node["health"]["gpus"]}
    devices = (gpu["pci_address"] for gpu in node["nvml"]["devices"])
    missing = [one for one in devices if one and one not in reported and one not in named]
    error = node["health"]["error"]
    if missing:
        yield finding(
            "GPU_HEALTH_UNKNOWN",
            host,
            gpus=name_gpus(node, *missing),
            error=error or "they are not in the report",
        )
