# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Cut the report of `nvidia-smi -q -x` into its GPUs, line by line.

Users choose the names of their processes, and nvidia-smi prints them without escaping. So the lists
of processes are dropped first, and a tag counts only if it is a whole line.

Source: tests/recorded/nvidia_smi_xml.yml
"""

from __future__ import annotations

import re
from typing import NamedTuple

# Eight H100 have 0.2 MiB without their processes.
MAX_BYTES = 8 * 1024 * 1024
# With accounting mode, each GPU lists the last 4,000 processes: 1 MiB.
_MAX_PRINTED = 64 * 1024 * 1024
_PROCESSES = ("processes", "accounted_processes")

_LIST = re.compile(rf"^[ \t]*<(?P<tag>/?(?:{'|'.join(_PROCESSES)}))>[ \t\r]*$", re.MULTILINE)
_END = "/nvidia_smi_log"
_TAG = re.compile(
    rf"""^[ \t]*<(?P<tag>gpu id="(?P<name>[^"\n]*)"|/gpu|{_END})>[ \t\r]*$""", re.MULTILINE
)
_MAX_GPUS = 64
_ATTACHED = re.compile(r"<attached_gpus>\s*(?P<number>[0-9]{1,3})\s*</attached_gpus>")
_HEAD = 4096


class Parts(NamedTuple):
    """The report in parts."""

    head: str  # what stands before the first GPU
    gpus: list[tuple[str, str]]  # the id and the content of each GPU that has an end
    is_ended: bool
    attached: int | None


def query(program: str) -> tuple[str, ...]:
    """Return the command, which prints no more than MAX_BYTES.

    Its exit code says nothing. The end of the report tells whether it is whole.
    """
    blank = "[[:space:]]*"
    lists = (f"\\,^{blank}<{name}>{blank}$,,\\,^{blank}</{name}>{blank}$,d" for name in _PROCESSES)
    drop = " ".join(f"-e '{one}'" for one in lists)
    pipe = f'"$0" -q -x | head -c {_MAX_PRINTED} | sed {drop} | head -c {MAX_BYTES}'
    return ("sh", "-c", pipe, program)


def split(text: str) -> Parts:
    """Cut the report into its parts. A GPU without an end is left out."""
    text = _without_processes(text)
    gpus: list[tuple[str, str]] = []
    name, start, is_ended = None, 0, False
    first = len(text)
    for line in _TAG.finditer(text):
        if line["tag"] == _END:
            is_ended = True
            break
        if line["name"] is not None:
            name, start = line["name"], line.end()
            first = min(first, line.start())
        elif name is not None and len(gpus) < _MAX_GPUS:
            gpus.append((name, text[start : line.start()]))
            name = None
    head = text[: min(first, _HEAD)]
    attached = _ATTACHED.search(head)
    return Parts(head, gpus, is_ended, int(attached["number"]) if attached else None)


def _without_processes(text: str) -> str:
    """Remove the lists of processes from the report."""
    kept: list[str] = []
    start, end = 0, None
    for line in _LIST.finditer(text):
        if end is None and not line["tag"].startswith("/"):
            kept.append(text[start : line.start()])
            end = f"/{line['tag']}"
        elif line["tag"] == end:
            start, end = line.end(), None
    return "".join(kept) + ("" if end else text[start:])
