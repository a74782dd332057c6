# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Which kernels does a node have, and which of them boots next? No I/O.

The next kernel is the newest one by version order, as GRUB sorts its menu without other settings.
That is a heuristic: GRUB_DEFAULT, `grub-reboot` and `grubby --set-default` choose another one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.read import packages

if TYPE_CHECKING:
    from collections.abc import Iterable

IMAGES = "/boot/vmlinuz-*"
_IMAGE, _HEADERS = "/boot/vmlinuz-", "linux-headers-"
# A package of every index. Without it, the node has no index, and nobody knows what is missing.
_ALWAYS_THERE = "base-files"
# The images by which a Red Hat system repairs itself: they have no modules of their own.
_RESCUE = "0-rescue"
_PART = re.compile(r"[0-9]+|[A-Za-z]+")


class Kernel(TypedDict):
    """An installed kernel."""

    release: str
    headers: bool  # whether a module can be built for it
    module: bool  # whether it has the nvidia module


def releases(images: Iterable[str], running: str) -> list[str]:
    """Return the installed kernels, the newest last. The running one may have no image."""
    found = {path[len(_IMAGE) :] for path in images}
    found = {release for release in found if not release.startswith(_RESCUE)}
    return sorted({*found, *([running] if running else [])}, key=_order)


def _order(release: str) -> list[tuple[int, int, str]]:
    """Compare numbers as numbers: 6.1.0-9 is older than 6.1.0-26. Letters are older than digits."""
    parts: list[str] = _PART.findall(release)
    return [(1, int(one), "") if one.isdigit() else (0, 0, one) for one in parts]


def headers_query(missing: Iterable[str]) -> tuple[str, ...]:
    """Return the command that lists which of these kernels have headers in apt's index."""
    names = (f"{_HEADERS}{one}" for one in missing)
    return ("apt-cache", *packages.UNCACHED, "madison", *names, _ALWAYS_THERE)


def parse_headers(stdout: str) -> list[str] | None:
    """Return the kernels whose headers apt's index has; None if there is no index."""
    names = [line.partition("|")[0].strip() for line in stdout.splitlines()]
    if _ALWAYS_THERE not in names:
        return None
    return [name[len(_HEADERS) :] for name in dict.fromkeys(names) if name.startswith(_HEADERS)]
