# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse what the GPUs report of themselves: the output of `nvidia-smi -q -x`.

The driver's branch decides which elements exist. A value that is not offered ("N/A"), an element
that is missing, and the text of an error in the place of a value are all None: one odd cell is no
evidence. Each GPU is parsed by itself, so a report that was cut still has its first GPUs.

Only the text of one GPU reaches the XML parser, without the head of the document and without the
names of processes. A text with a markup declaration is rejected, so entities cannot be declared.

Source: tests/recorded/nvidia_smi_xml.yml
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypedDict
from xml.etree import ElementTree

from ansible_collections.metal.gpu.plugins.module_utils.read import nvidia_smi_lines
from ansible_collections.metal.gpu.plugins.module_utils.read.pci import normalise_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeVar
    from xml.etree.ElementTree import Element

    from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output

    Value = TypeVar("Value")

PROGRAM = "nvidia-smi"
# Without persistence mode, nvidia-smi initialises every GPU first. The report takes longer than the
# first query.
TIMEOUT_S = 60
# What the driver wants if it wants nothing.
NO_ACTION = "None"
# What a driver says of GPUs that are parts of GPUs, and of those that have such parts.
VGPU, HOST_VGPU = "VGPU", "Host VGPU"
# Of the fabric: no words, or none that can be shown.
UNKNOWN = "Unknown"

# Lists that nobody needs, some of them long. Those of processes are left if they are in one line.
_LISTS = ("processes", "accounted_processes", "supported_clocks", "mig_devices")
# Characters that XML does not have, and ampersands that nobody escaped, as in a serial number.
_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]|&(?![A-Za-z#]\w*;)")
_MAX_REASONS = 16
# What stands in the place of MIG instances.
_NO_INSTANCE = "None"
_INSTANCE = re.compile(
    r"<(?P<name>index|gpu_instance_id|compute_instance_id)>\s*(?P<number>[0-9]{1,4})\s*<", re.ASCII
)
_CUDA = re.compile(r"<cuda_version>\s*(?P<cuda>[0-9]{1,3}\.[0-9]{1,3})\s*</cuda_version>")
_UUID = re.compile(r"GPU-[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
# A word of the driver, such as "Drain and Reset".
_WORDS = re.compile(r"[A-Za-z0-9][A-Za-z0-9 /_.()-]{0,79}")
# What stands in the place of a value: not offered, or an error.
_NO_VALUE = re.compile(
    r"N/A|Not Supported|ERR!|Unknown|Timeout|No data|Not Available|In Use|Driver Not Loaded"
    r"|Invalid Argument|Insufficient (?:Size|External Power)|Already Initialized|Corrupted infoROM"
    r"|.*\b(?:error|lost|inaccessible|permissions?|deprecated|not found|uninitialized|mismatch"
    r"|request issue|blocked the request|requires (?:reset|restart))\b.*",
    re.IGNORECASE,
)
_DEGRADED = ("True", "Degraded")
# MIG instances have counters of their own, and those of their GPU are then not offered.
_INSTANCE_ERRORS = re.compile(
    r"<volatile_count>\s*(?:<(?!/volatile_count)[^>]*>[^<]*)*?"
    r"<sram_uncorrectable\w*>\s*(?P<number>[0-9]{1,18})\s*<"
)
_CLOCKS = ("clocks_event", "clocks_throttle")  # the second one before branch 535
_QUOTED_LENGTH = 200


class Link(TypedDict):
    """The PCIe link of a GPU: its lanes, and the generation that GPU and slot support."""

    width: int | None
    max_width: int | None
    max_generation: int | None


class FabricWords(TypedDict):
    """The NVLink fabric of a GPU, in the driver's words, or UNKNOWN if it has none."""

    state: str  # word of `nvidia-smi`, such as `Completed`; `N/A` without a fabric
    status: str  # word of `nvidia-smi`, such as `Success`
    clique: int | None  # number of the NVLink clique
    health: str | None  # summary, such as `Healthy`; None: not offered, as on H100
    misconfigured: str | None  # what is wrong with the configuration; `None` if nothing is
    degraded: list[str]  # parts that are not as they should be, on some GPUs always


class Instance(TypedDict):
    """A part of a GPU. Its files in /dev are known only to the driver; empty: not known."""

    index: int | None  # number on its GPU
    gpu_instance: int | None
    compute_instance: int | None
    files: list[str]  # paths below `/dev/nvidia-caps`, if the driver lists them


class Health(TypedDict):
    """What a GPU reports of itself; None: not offered, or not known."""

    pci_address: str  # address in `pci`
    uuid: str | None
    model: str | None
    recovery_action: str | None  # what the driver wants, such as `Reset`; `None`: nothing
    uncorrected: int | None  # memory errors since the last reset
    uncorrected_sram: int | None  # memory errors in SRAM, which no spare row replaces
    uncorrected_ever: int | None  # memory errors since the GPU was built; these are over
    sram_threshold_exceeded: bool | None  # whether SRAM had more errors than NVIDIA tolerates
    unrepairable_memory: bool | None  # whether the GPU has memory that it cannot repair
    repairs_pending: list[str]  # what the next reset repairs, `channel` and `tpc`
    remapped: int | None  # number of rows of memory whose spare rows are in use
    remap_pending: bool | None  # whether the next reset replaces rows
    remap_failed: bool | None  # whether a defective row could not be replaced
    pages_retired: int | None  # number of pages of memory, on GPUs before Ampere
    pages_pending: bool | None  # whether the next reset retires pages
    clocks: list[str]  # why they are lower than possible, such as `hw_thermal_slowdown`
    link: Link  # PCIe lanes, and the PCIe generation that GPU and slot support
    mig: str | None  # `Enabled` or `Disabled`
    mig_pending: str | None  # value of `mig` after the next reset
    mig_instances: list[Instance] | None  # MIG instances; None: the report does not list them
    compute_mode: str | None  # which programs may use it, such as `Default`
    virtualization: str | None  # what a virtual machine has of it, such as `VGPU` for a part
    license: str | None  # words about the license of a part


class Gpu(Health):
    """The report of a GPU."""

    fabric: FabricWords | None


class Report(TypedDict):
    """The report of all GPUs, or why it is missing or incomplete."""

    cuda_version: str | None
    gpus: list[Gpu]
    error: str | None


def nothing() -> Report:
    """Return the report of a node that was not asked."""
    return {"cuda_version": None, "gpus": [], "error": None}


def parse_report(output: Output | None) -> Report:
    """Parse the output of the query; None if it was not run."""
    if output is None:
        return {**nothing(), "error": f"`{PROGRAM} -q -x` was not run"}
    parts = nvidia_smi_lines.split(output.stdout)
    gpus: list[Gpu] = []
    broken: list[str] = []
    for name, body in parts.gpus:
        try:
            gpus.append(_parse_gpu(name, body))
        except (ValueError, ElementTree.ParseError) as problem:
            broken.append(f"GPU {name}: {problem}")
    cuda = _CUDA.search(parts.head)
    error = None
    if output.rc is None:
        error = f"did not end within {TIMEOUT_S} s"
    elif broken:
        error = f"printed no valid XML: {_printable(broken[0])}"
    elif not parts.is_ended:
        error = _describe_end(output)
    elif parts.attached is not None and len(gpus) < parts.attached:
        error = f"printed {len(gpus)} of {parts.attached} GPUs"
    return {
        "cuda_version": cuda["cuda"] if cuda else None,
        "gpus": gpus,
        "error": f"`{PROGRAM} -q -x` {error}" if error else None,
    }


def _without(text: str, name: str) -> str:
    """Remove all elements of a name."""
    kept = []
    for part in text.split(f"<{name}>"):
        removed, end, rest = part.partition(f"</{name}>")
        kept.append(rest if end else removed)
    return "".join(kept)


def _describe_end(output: Output) -> str:
    if "<nvidia_smi_log>" in output.stdout:
        return f"ended in the middle of its report, after {len(output.stdout)} characters"
    printed = _printable(f"{output.stdout} {output.stderr}")
    return f"printed no report: {printed}" if printed else "printed nothing"


def _parse_gpu(name: str, body: str) -> Gpu:
    """Parse the element of a GPU. Raises ValueError and ParseError."""
    address = normalise_address(name)
    text = body
    for one in _LISTS:
        text = _without(text, one)
    if "<!" in text or "<?" in text:
        raise ValueError("a markup declaration")
    gpu = ElementTree.fromstring(f"<gpu>{_NOT_XML.sub('?', text)}</gpu>")
    uuid = _text(gpu, "uuid")
    of_instances = _sum(int(one["number"]) for one in _INSTANCE_ERRORS.finditer(body))
    return {
        "pci_address": address,
        "uuid": uuid if uuid and _UUID.fullmatch(uuid) else None,
        "model": _word(gpu, "product_name"),
        "recovery_action": _recovery_action(gpu),
        "uncorrected": _either(_uncorrected(gpu, "volatile"), of_instances),
        "uncorrected_sram": _either(_uncorrected(gpu, "volatile", "sram_"), of_instances),
        "uncorrected_ever": _uncorrected(gpu, "aggregate"),
        "sram_threshold_exceeded": _flag(gpu, "ecc_errors/aggregate/sram_threshold_exceeded"),
        "unrepairable_memory": _flag(gpu, "ecc_errors/unrepairable_memory"),
        "repairs_pending": [
            part for part in ("channel", "tpc") if _flag(gpu, f"ecc_errors/{part}_repair_pending")
        ],
        "remapped": _sum(
            _number(gpu, f"remapped_rows/remapped_row_{kind}") for kind in ("corr", "unc")
        ),
        "remap_pending": _flag(gpu, "remapped_rows/remapped_row_pending"),
        "remap_failed": _flag(gpu, "remapped_rows/remapped_row_failure"),
        "pages_retired": _sum(
            _number(gpu, f"retired_pages/{kind}_retirement/retired_count")
            for kind in ("multiple_single_bit", "double_bit")
        ),
        "pages_pending": _first(
            _flag, gpu, "retired_pages/pending_retirement", "retired_pages/pending_blacklist"
        ),
        "clocks": list(_active_reasons(gpu)),
        "link": _link(gpu),
        "mig": _word(gpu, "mig_mode/current_mig"),
        "mig_pending": _word(gpu, "mig_mode/pending_mig"),
        "mig_instances": _instances(body),
        "compute_mode": _word(gpu, "compute_mode"),
        "virtualization": _word(gpu, "gpu_virtualization_mode/virtualization_mode"),
        "license": _word(gpu, "vgpu_software_licensed_product/license_status"),
        "fabric": _fabric(gpu),
    }


def _instances(body: str) -> list[Instance] | None:
    """Return the MIG instances of a GPU; None if the report does not list them."""
    _before, _start, rest = body.partition("<mig_devices>")
    listed, end, _after = rest.partition("</mig_devices>")
    _head, *devices = listed.split("<mig_device>")
    if not end or (not devices and listed.strip() not in ("", _NO_INSTANCE)):
        return None
    return [_instance(device) for device in devices]


def _instance(device: str) -> Instance:
    numbers = {match["name"]: int(match["number"]) for match in _INSTANCE.finditer(device)}
    return {
        "index": numbers.get("index"),
        "gpu_instance": numbers.get("gpu_instance_id"),
        "compute_instance": numbers.get("compute_instance_id"),
        "files": [],
    }


def _recovery_action(gpu: Element) -> str | None:
    """Return what the driver wants; drivers before 565 say it in two other elements."""
    action = _word(gpu, "gpu_recovery_action")
    if action is not None:
        return action
    required = _flag(gpu, "gpu_reset_status/reset_required")
    recommended = _flag(gpu, "gpu_reset_status/drain_and_reset_recommended")
    if required or recommended:
        return "Reset" if required else "Drain and Reset"
    return None if required is None else NO_ACTION


def _uncorrected(gpu: Element, period: str, memory: str = "") -> int | None:
    """Add uncorrected errors: SRAM in one or two elements, and DRAM; one total before Turing."""
    found = gpu.find(f"ecc_errors/{period}")
    if found is None:
        return None
    names = [one.tag for one in found if f"{memory}uncorrectable" in one.tag]
    total = () if memory else ("double_bit/total",)
    return _sum(_number(found, name) for name in (*names, *total))


def _active_reasons(gpu: Element) -> Iterator[str]:
    """Yield why the clocks are lower than they could be, such as "hw_thermal_slowdown"."""
    for kind in _CLOCKS:
        for one in gpu.findall(f"{kind}_reasons/*")[:_MAX_REASONS]:
            if (one.text or "").strip() == "Active":
                yield one.tag.replace(f"{kind}_reason_", "", 1)[:_QUOTED_LENGTH]


def _link(gpu: Element) -> Link:
    link = "pci/pci_gpu_link_info"
    return {
        "width": _lanes(gpu, f"{link}/link_widths/current_link_width"),
        "max_width": _lanes(gpu, f"{link}/link_widths/max_link_width"),
        "max_generation": _number(gpu, f"{link}/pcie_gen/max_link_gen"),
    }


def _fabric(gpu: Element) -> FabricWords | None:
    """Return the fabric; None where the driver is too old to have a word for it."""
    if gpu.find("fabric/state") is None:
        return None
    return {
        "state": _raw_word(gpu, "fabric/state") or UNKNOWN,
        "status": _raw_word(gpu, "fabric/status") or UNKNOWN,
        "clique": _number(gpu, "fabric/cliqueId"),
        "health": _word(gpu, "fabric/health/summary"),
        "misconfigured": _word(gpu, "fabric/health/incorrect_configuration"),
        "degraded": [
            f"{one.tag}: {(one.text or '').strip()}"[:_QUOTED_LENGTH]
            for one in gpu.findall("fabric/health/*")
            if (one.text or "").strip() in _DEGRADED
        ],
    }


# --- values of elements ---------------------------------------------------------------------------


def is_no_value(words: str) -> bool:
    """Tell whether words stand in the place of a value: not offered, or an error."""
    return _NO_VALUE.fullmatch(words) is not None


def _text(parent: Element, path: str) -> str | None:
    """Return the text of an element without the brackets that some branches print."""
    found = parent.findtext(path)
    return None if found is None else found.strip().strip("[]")


def _raw_word(parent: Element, path: str) -> str | None:
    """Return the words of the driver, whatever they say."""
    text = _text(parent, path)
    return text if text and _WORDS.fullmatch(text) else None


def _word(parent: Element, path: str) -> str | None:
    text = _raw_word(parent, path)
    return None if text is None or is_no_value(text) else text


def _flag(parent: Element, path: str) -> bool | None:
    return {"Yes": True, "No": False}.get(_text(parent, path) or "")


def _number(parent: Element, path: str) -> int | None:
    text = _text(parent, path) or ""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text, re.ASCII) else None


def _lanes(parent: Element, path: str) -> int | None:
    """Return 16 for "16x"."""
    text = _text(parent, path) or ""
    return int(text[:-1]) if re.fullmatch(r"[0-9]{1,2}x", text, re.ASCII) else None


def _sum(values: Iterable[int | None]) -> int | None:
    found = [value for value in values if value is not None]
    return sum(found) if found else None


def _either(value: int | None, other: int | None) -> int | None:
    return other if value is None else value


def _first(read: Callable[[Element, str], Value | None], gpu: Element, *paths: str) -> Value | None:
    """Return the first value that is known."""
    values = (read(gpu, path) for path in paths)
    return next((value for value in values if value is not None), None)


def _printable(text: str) -> str:
    words = " ".join(text.split())
    shown = "".join(character if character.isprintable() else "?" for character in words)
    return shown if len(shown) <= _QUOTED_LENGTH else f"{shown[:_QUOTED_LENGTH]}…"
