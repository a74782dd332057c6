# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Collect what the driver says about GPUs that it does not start, by GPU.

A message can have several lines: dmesg and the journal start all but the first one with blanks.
Some messages have no address. The driver then ends with a line that has it.

Source: tests/recorded/driver_words.yml
"""

from __future__ import annotations

import re
from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.read import driver_words
from ansible_collections.metal.gpu.plugins.module_utils.read.kernel_events import printable
from ansible_collections.metal.gpu.plugins.module_utils.read.pci import normalise_place

# A line has one of these, or is not read.
MARKS = ("NVRM", "nvidia", " is rejected", "Lockdown: ")

_MOST_GPUS, _MOST_WORDS = 64, 4
_OUTCOME = re.compile(driver_words.OUTCOME)
_PLACE = re.compile(r"\b[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?\b")
_MESSAGE = re.compile(r"(?:NVRM: |\bnvidia\w*[ :]|\bLoading of |\bLockdown: ).*")
_SENTENCE = re.compile(r".*?\.(?= [A-Z])")


class Said(TypedDict):
    """Words of one kind about a GPU that was not started."""

    kind: str
    line: str


class Collector:
    """Reads lines in their order."""

    def __init__(self) -> None:
        self._words: dict[str, list[Said]] = {}
        self._unplaced: list[Said] = []  # of a GPU whose address comes later
        self._message = ""
        self._quoted: Said | None = None  # of the message that is read

    def by_address(self) -> dict[str, list[Said]]:
        """Return the words, by address. An empty address has those that name no GPU."""
        self._place("")
        return self._words

    def read(self, line: str) -> None:
        found = _MESSAGE.search(line)
        text = found[0].replace("NVRM: ", "").strip() if found else line.strip()
        is_continued = line[:1].isspace()
        self._message = f"{self._message} {text}" if is_continued else text
        self._quoted = self._quoted if is_continued else None
        quoted = _SENTENCE.match(self._message)
        words = printable(quoted[0] if quoted else self._message)
        if self._quoted:
            self._quoted["line"] = words
        place = _PLACE.search(self._message)
        address = normalise_place(place[0]) if place else None
        if address and _OUTCOME.search(line):
            self._place(address)
        if row := driver_words.find(line):
            said: Said = {"kind": row.kind, "line": words}
            if address or row.is_of_node:
                self._keep(address or "", said)
            elif len(self._unplaced) < _MOST_WORDS:
                self._unplaced.append(said)
            self._quoted = self._quoted or said

    def _place(self, address: str) -> None:
        for said in self._unplaced:
            self._keep(address, said)
        self._unplaced = []

    def _keep(self, address: str, said: Said) -> None:
        if address in self._words or len(self._words) < _MOST_GPUS:
            kept = self._words.setdefault(address, [])
            if len(kept) < _MOST_WORDS and said["kind"] not in [one["kind"] for one in kept]:
                kept.append(said)
