# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse the kernel log: the errors that the NVIDIA driver reported of GPUs and NVSwitches.

The kernel has its newest lines in a ring of fixed size, which `dmesg` prints. The journal may have
older lines of the same boot, or have dropped some that are still in the ring. So the ring counts,
and the journal only for the time before it. Errors before the last load of the driver are over, and
so are those of a GPU before the driver took back its recovery action. What the driver says about
GPUs that it does not start is kept by GPU, from the last time that it was loaded.

Source: tests/recorded/xids.yml, tests/recorded/driver_words.yml
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.read import driver_words
from ansible_collections.metal.gpu.plugins.module_utils.read.kernel_events import (
    LOST,
    SXID,
    XID,
    Event,
    Events,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.kernel_words import (
    MARKS,
    Collector,
    Said,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.output import failure_text
from ansible_collections.metal.gpu.plugins.module_utils.read.pci import normalise_place
from ansible_collections.metal.gpu.plugins.module_utils.read.xids import (
    HEALING,
    RECOVERY_CHANGED,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output

RING = ("dmesg", "--kernel")
JOURNAL_LINES = 20000
# Newest first: of more lines, the oldest ones are missing. With --quiet, nothing would tell a
# journal without files from one without such lines.
JOURNAL = (
    *("journalctl", "--dmesg", "--boot", "--output=short-monotonic", "--no-pager"),
    *("--reverse", f"--lines={JOURNAL_LINES}"),
    "--grep=Xid \\(|fallen off the bus|The NVIDIA GPU|GPU at PCI|NVIDIA UNIX|Nvlink [Cc]ore"
    f"|nvswitch: Probing|Linux version|{driver_words.PATTERN}|{driver_words.OUTCOME}",
)

_PREFIX_LENGTH = 200
_TIME = re.compile(r"\[ *\d{1,9}\.\d{6}\]")
_ADDRESS = r"(?P<address>[0-9A-Fa-f]{2,8}:[0-9A-Fa-f:.]{2,12})"
# With a process, without one, of a MIG instance, and of old drivers.
_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?{_ADDRESS}(?: [^)]*)?\): (?P<number>\d{{1,6}}),? ?(?P<words>.*)"
)
# Lines with the same number follow, whose words are "Severity" and "Data".
_SXID = re.compile(
    rf"nvidia-nvswitch\d*: SXid \((?:PCI:)?{_ADDRESS}\): (?P<number>\d{{1,6}}), "
    r"(?P<words>(?:Non-)?fatal\b.*)",
    re.IGNORECASE,
)
_OFF_THE_BUS = re.compile(rf"NVRM: (?P<words>GPU {_ADDRESS}: GPU has fallen off the bus.*)")
# When the driver is loaded; the name of the GPU is in an earlier line, or in the same one.
_NAMED = re.compile(rf"NVRM: The NVIDIA GPU {_ADDRESS}")
_SILENT = re.compile(r"NVRM: .*?(?P<words>fallen off the bus and is not responding.*)")
_UUID = re.compile(
    rf"NVRM: GPU at (?:PCI:)?{_ADDRESS}: "
    r"(?P<uuid>GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
)
# The first line of a load comes before the GPUs are probed, and the last one after that. A load
# that fails, for example because no GPU answers, ends with the line of a removal.
_LOAD = re.compile(r"nvidia-nvlink: Nvlink Core is being init")
_LOADED = re.compile(r"NVRM: loading NVIDIA UNIX")
_REMOVED = re.compile(r"nvidia-nvlink: Unregistered (?:the )?Nvlink")
_BOOT = re.compile(r"Linux version \d")
_SWITCH_PROBED = re.compile(rf"nvidia-nvswitch: Probing device {_ADDRESS}")
_CODE = "0x(?P<{}>[0-9A-Fa-f]{{1,4}})"
_RECOVERY = re.compile(
    rf"recovery action changed (?:from {_CODE.format('before')} )?.*to {_CODE.format('code')} \("
)


class Found(TypedDict):
    """What the lines have about GPUs since the driver was loaded."""

    loaded: int | None  # seconds since boot
    events: list[Event]
    unlisted: int  # further lines, if there are too many different errors
    recovery: dict[str, int]  # code of the outstanding action, by address
    uuids: dict[str, str]  # by address
    words: dict[str, list[Said]]  # by address; empty address: no GPU is named


class Log(Found):
    """The kernel log, as far as it was read."""

    sources: list[str]  # what could be read
    error: str | None  # why something could not be read, or not all of it


def nothing() -> Log:
    """Return the log of a node on which there is nothing to look for."""
    return {"sources": [], "error": None, **_Reader().read(())}


def has_load(ring: Output | None) -> bool:
    """Whether the ring reaches back to the load of the driver, or to the boot."""
    if ring is None or ring.rc != 0:
        return False
    return _has_boot(ring) or _LOAD.search(ring.stdout) is not None


def parse(ring: Output | None, journal: Output | None) -> Log:
    """Parse the output of RING, and of JOURNAL if it was necessary."""
    sources, errors = [], []
    if ring and ring.rc == 0:
        sources.append("dmesg")
    else:
        errors.append(f"dmesg: {failure_text(ring, 'dmesg')}")
    # Without a match, journalctl exits with 1. It warns of damaged files, and exits with 0.
    if journal and (journal.rc == 0 or (journal.rc == 1 and not journal.stderr.strip())):
        sources.append("journal")
        errors = []
        if journal.stdout.count("\n") >= JOURNAL_LINES:
            errors.append(f"journalctl: only the last {JOURNAL_LINES} lines about GPUs were read")
    elif not has_load(ring):
        errors.append(f"journalctl: {failure_text(journal, 'journalctl')}")
    lines = _merge(_ring_text(ring, journal), journal.stdout if journal else "")
    found = _Reader().read(lines)
    if sources and not errors and found["loaded"] is None and not _has_boot(ring, journal):
        errors.append(f"{' and '.join(sources)}: the lines since the boot are not complete")
    return {"sources": sources, "error": "; ".join(errors) or None, **found}


def _has_boot(ring: Output | None, journal: Output | None = None) -> bool:
    """Whether one of them starts with the boot. A journal can lose its oldest files."""
    if ring is not None and ring.rc == 0 and _first_time(ring.stdout) == 0:
        return True
    return journal is not None and _BOOT.search(journal.stdout) is not None


def _ring_text(ring: Output | None, journal: Output | None) -> str:
    """Return the lines of the ring. If its newest ones are missing, the journal is enough."""
    is_enough = journal is not None and _first_time(journal.stdout) is not None
    if ring is None or (ring.rc != 0 and is_enough):
        return ""
    return ring.stdout


def _merge(ring: str, journal: str) -> Iterator[str]:
    """Yield the lines of the journal that are older than the ring, and those of the ring."""
    start = _first_time(ring)
    for entry in _chronological(journal):
        time = _time(entry[0])
        if start is not None and time is not None and time >= start:
            break
        yield from entry
    yield from ring.splitlines()


def _chronological(journal: str) -> list[list[str]]:
    """Return the entries of the journal, the oldest first. An entry can have several lines."""
    entries: list[list[str]] = []
    for line in journal.splitlines():
        if entries and not line.startswith("["):
            entries[-1].append(line)
        else:
            entries.append([line])
    return entries[::-1]


def _first_time(text: str) -> float | None:
    match = _TIME.search(text)
    return float(match[0].strip("[ ]")) if match else None


def _time(line: str) -> float | None:
    return _first_time(line[:_PREFIX_LENGTH])


class _Reader:
    """Reads lines in their order, and keeps what still counts."""

    def __init__(self) -> None:
        self._now = 0
        self._loaded: int | None = None
        self._is_loading = False
        self._named: str | None = None  # the GPU of a message with several lines
        self._forget_all()

    def _forget_all(self) -> None:
        self._events = Events()
        self._recovery: dict[str, int] = {}
        self._uuids: dict[str, str] = {}
        self._words = Collector()

    def read(self, lines: Iterable[str]) -> Found:
        for line in lines:
            if any(word in line for word in MARKS):
                time = _time(line)
                self._now = self._now if time is None else int(time)
                self._read_line(line)
                self._words.read(line)
        return {
            "loaded": self._loaded,
            "events": self._events.listed(),
            "unlisted": self._events.unlisted,
            "recovery": self._recovery,
            "uuids": self._uuids,
            "words": self._words.by_address(),
        }

    def _read_line(self, line: str) -> None:
        if match := _XID.search(line):
            self._read_xid(match)
        elif match := _SXID.search(line):
            self._add(SXID, match, int(match["number"]))
        elif match := _OFF_THE_BUS.search(line):
            self._add(LOST, match, None)
        elif match := _UUID.search(line):
            if address := normalise_place(match["address"]):
                self._uuids[address] = match["uuid"]
        elif _LOAD.search(line):
            self._forget_all()
            self._is_loading = True
            self._loaded = self._now
        elif _REMOVED.search(line):
            if not self._is_loading:
                self._forget_all()
                self._loaded = self._now
            self._is_loading = False
        elif _LOADED.search(line):
            # The probes of this load are already in the log. Without its first line, an Xid can be
            # older than the load.
            if not self._is_loading:
                self._events.forget(lambda event: event["source"] == XID)
                self._recovery = {}
            self._is_loading = False
            self._loaded = self._now
        elif match := _SWITCH_PROBED.search(line):
            # A reset of all GPUs probes the NVSwitches between them again.
            address = normalise_place(match["address"])
            self._events.forget(lambda event: event["source"] == XID or event["address"] == address)
            self._recovery = {}
        else:
            self._read_probe(line)

    def _read_xid(self, match: re.Match[str]) -> None:
        number, address = int(match["number"]), normalise_place(match["address"])
        changed = _RECOVERY.search(match["words"]) if number == RECOVERY_CHANGED else None
        if changed and address:
            code = int(changed["code"], 16)
            self._recovery[address] = code
            if code == 0:
                del self._recovery[address]
                # Other actions, such as Drain P2P, end without a reset.
                if int(changed["before"] or "0", 16) in HEALING:
                    self._events.forget(lambda event: event["address"] == address)
                    return
        self._add(XID, match, number)

    def _read_probe(self, line: str) -> None:
        if match := _NAMED.search(line):
            self._named = match["address"]
        if (match := _SILENT.search(line)) and self._named:
            self._add(LOST, match, None, self._named)
            self._named = None

    def _add(
        self, source: str, match: re.Match[str], number: int | None, named: str | None = None
    ) -> None:
        address = normalise_place(named or match["address"])
        if address is not None:
            self._events.add(source, address, number, match["words"], self._now)
