# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Count the errors of GPUs and NVSwitches in the kernel log.

A log of 800,000 lines of the same error is on record: lines are counted, and not kept. There is
room for a limited number of different errors. Corrected errors of the NVSwitches and errors of
programs make room for those that matter.

Source: tests/recorded/xids.yml
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypedDict, TypeVar

from ansible_collections.metal.gpu.plugins.module_utils.read import xids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

XID, SXID, LOST = "xid", "sxid", "lost"

_LINE_LENGTH = 200
_MOST_EVENTS = 200
# An error of NVLink that ended a program was fatal, whatever its own line says.
_ENDED = re.compile(r"caused by previous Xid 1(?:4[4-9]|50)\b")
_FATAL = re.compile(rf"\bFatal\b|{_ENDED.pattern}")


class Event(TypedDict):
    """An error that the driver reported once or several times."""

    source: str  # `xid` of a GPU, `sxid` of an NVSwitch, `lost` for a GPU that fell off the bus
    address: str  # address in `pci`
    number: int | None  # Xid or SXid
    count: int  # number of lines
    first: int  # seconds since boot
    last: int  # seconds since boot
    line: str  # last line, or last line with `Fatal`, at most 200 characters


AnyEvent = TypeVar("AnyEvent", bound=Event)


class Events:
    """The errors, and the number of lines about those for which there was no room."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str, int | None], Event] = {}
        self.unlisted = 0

    def listed(self) -> list[Event]:
        return list(self._by_key.values())

    def forget(self, is_over: Callable[[Event], bool]) -> None:
        self._by_key = {key: one for key, one in self._by_key.items() if not is_over(one)}

    def add(self, source: str, address: str, number: int | None, words: str, now: int) -> None:
        words = printable(words)
        event = self._by_key.get((source, address, number))
        if event is not None:
            event["count"] += 1
            event["last"] = now
            if _FATAL.search(words) or not _FATAL.search(event["line"]):
                event["line"] = words
            return
        new: Event = {
            "source": source,
            "address": address,
            "number": number,
            "count": 1,
            "first": now,
            "last": now,
            "line": words,
        }
        if len(self._by_key) >= _MOST_EVENTS and not self._make_room(new):
            self.unlisted += 1
        else:
            self._by_key[(source, address, number)] = new

    def _make_room(self, new: Event) -> bool:
        """Remove the error that matters least, if it matters less than the new one."""
        if not _weight(new):
            return False
        key, least = min(self._by_key.items(), key=lambda item: _weight(item[1]))
        if _weight(least) >= _weight(new):
            return False
        self.unlisted += least["count"]
        del self._by_key[key]
        return True


def is_fatal(event: Event) -> bool:
    """Whether the driver calls the error fatal."""
    return _FATAL.search(event["line"]) is not None


def is_fatal_of_switch(event: Event) -> bool:
    """Whether it is a fatal error of an NVSwitch. Some are, although they do not say so."""
    return event["source"] == SXID and (is_fatal(event) or event["number"] in xids.FATAL_SXIDS)


def fatal_of_switches(events: Iterable[AnyEvent]) -> dict[str, list[AnyEvent]]:
    """Return the fatal errors of NVSwitches by address, the newest first.

    The links to a GPU that fell off the bus are down, too, and that is no error of the NVSwitch.
    """
    logged = list(events)
    is_lost = any(one["source"] == LOST or one["number"] == xids.OFF_THE_BUS for one in logged)
    switches: dict[str, list[AnyEvent]] = {}
    for one in sorted(logged, key=lambda one: -one["last"]):
        is_explained = is_lost and one["number"] == xids.LINKS_DOWN
        if is_fatal_of_switch(one) and not is_explained:
            switches.setdefault(one["address"], []).append(one)
    return switches


def meaning(event: Event) -> xids.Xid:
    """Return the meaning of an error of a GPU."""
    return xids.look_up(xids.OFF_THE_BUS if event["number"] is None else event["number"])


def tier(event: Event) -> str:
    """Return what an error of a GPU means for it."""
    found = meaning(event)
    if found.is_graded and not is_fatal(event):
        return xids.INFORMATION
    if event["number"] == xids.ENDED and _ENDED.search(event["line"]):
        return xids.RESET
    return found.tier


def _weight(event: Event) -> int:
    if event["source"] == SXID:
        return 2 if is_fatal_of_switch(event) else 0
    return {xids.HARDWARE: 2, xids.RESET: 2, xids.UNKNOWN: 1}.get(tier(event), 0)


def printable(text: str) -> str:
    shown = "".join(sign if sign.isprintable() else "?" for sign in text[: _LINE_LENGTH + 1])
    return shown if len(shown) <= _LINE_LENGTH else f"{shown[:_LINE_LENGTH]}…"
