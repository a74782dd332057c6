# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find version numbers in what programs print and package managers store. No I/O."""

from __future__ import annotations

import re

# More digits than these are no version, and int() takes no more than 4,300.
_VERSION = re.compile(
    r"(?<!\d)\d{1,9}\.\d{1,9}(?:\.\d{1,9})*(?!\d)(?:-(?:alpha|beta|rc)\.?\d{0,9})?"
)


def parse_version(text: str) -> str | None:
    """Return the first version number in a program's output, without "v" and build marks."""
    match = _VERSION.search(text)
    return match.group() if match else None


def upstream_version(package_version: str) -> str:
    """Cut the epoch and the packaging revision: "5:29.8.1-1~debian.12~bookworm" → "29.8.1"."""
    return package_version.split(":", 1)[-1].rsplit("-", 1)[0]


def release(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, to compare by: "1.36.0-rc.1" → (1, 36, 0)."""
    return tuple(int(number) for number in re.findall(r"\d{1,9}", version.split("-", 1)[0]))
