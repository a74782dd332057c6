# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take out of a text what names one GPU or one machine."""

from __future__ import annotations

import re

_UUID = r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"
# Elements of `nvidia-smi -q -x` and labels of `nvidia-smi -q` whose values belong to one device.
_ELEMENTS = "serial|gpu_serial|board_serial|chassis_serial_number|gpu_pdi|vgpu_uuid|pdi"
_LABELS = "Serial Number|GPU PDI|Chassis Serial Number|Board Serial"
_RULES = (
    (re.compile(rf"<({_ELEMENTS})>[^<]*</\1>"), r"<\1>removed</\1>"),
    (re.compile(rf"^(\s*(?:{_LABELS})\s*:).*", re.MULTILINE), r"\1 removed"),
    (re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])"), "192.0.2.1"),
    (re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE), "02:00:00:00:00:00"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "0" * 32),  # a machine id
)


class Scrubber:
    """Gives the same name to the same UUID in all texts."""

    def __init__(self, *names: str) -> None:
        self._seen: dict[str, int] = {}
        self._names = [name for name in names if name and name != "localhost"]

    def __call__(self, text: str) -> str:
        for pattern, new in _RULES:
            text = pattern.sub(new, text)
        text = re.sub(_UUID, self._number, text)
        for name in self._names:
            text = re.sub(rf"\b{re.escape(name)}\b", "gpu-1", text)
        return text

    def _number(self, match: re.Match[str]) -> str:
        number = self._seen.setdefault(match[0].lower(), len(self._seen) + 1)
        return f"00000000-0000-0000-0000-{number:012d}"
