# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Which kernels does a node have, and which of them boots next?

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
# The previous image of the same release, as `make install` keeps it, and a kernel for debugging,
# which Red Hat's boot loader starts only when asked.
_NEVER_NEXT = (".old", "+debug")
_CANDIDATE = "rc"
_PART = re.compile(r"[0-9]+|[A-Za-z]+")


class Kernel(TypedDict):
    """An installed kernel."""

    release: str
    headers: bool  # whether they are installed
    module: bool  # whether it has the `nvidia` module


def releases(images: Iterable[str], running: str) -> list[str]:
    """Return the installed kernels, the newest last. The running one may have no image."""
    found = {path[len(_IMAGE) :] for path in images}
    found = {
        release
        for release in found
        if not release.startswith(_RESCUE) and not release.endswith(_NEVER_NEXT)
    }
    return sorted({*found, *([running] if running else [])}, key=order)


def order(release: str) -> list[tuple[int, int, str]]:
    """Compare numbers as numbers: 6.1.0-9 is older than 6.1.0-26. Letters are older than digits.

    A release candidate is older than what has nothing at its place: 6.12.0-rc3, then 6.12.0.
    """
    parts: list[str] = _PART.findall(release)
    end = (0, 0, "")
    return [*((1, int(one), "") if one.isdigit() else _word(one) for one in parts), end]


def _word(word: str) -> tuple[int, int, str]:
    return (-1 if word == _CANDIDATE else 0, 0, word)


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
