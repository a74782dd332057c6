# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse and compare the version numbers of programs and packages."""

from __future__ import annotations

import re

_NUMBERS = re.compile(r"\d{1,9}(?:\.\d{1,9})*")
_CANDIDATE = re.compile(r"-(alpha|beta|rc)")
# A number with more digits is no version, and int() accepts at most 4,300.
_VERSION = re.compile(
    r"(?<!\d)\d{1,9}\.\d{1,9}(?:\.\d{1,9})*(?!\d)(?:-(?:alpha|beta|rc)\.?\d{0,9})?"
)


def parse_version(text: str) -> str | None:
    """Return the first version number in a program's output, without "v" and build metadata."""
    match = _VERSION.search(text)
    return match.group() if match else None


def upstream_version(package_version: str) -> str:
    """Cut the epoch and the packaging revision: "5:29.8.1-1~debian.12~bookworm" → "29.8.1"."""
    return package_version.split(":", 1)[-1].rsplit("-", 1)[0]


def release(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, to check for features of a release.

    A candidate counts as its release, because it has the same features: "1.36.0-rc.1" and
    "1.36.0~rc.1" are (1, 36, 0). To compare two versions, use `is_newer`.
    """
    match = _NUMBERS.match(version)
    return tuple(map(int, match.group().split("."))) if match else ()


def is_newer(version: str, other: str) -> bool:
    """Return whether a version is newer than another one, by the rules of dpkg and of semver.

    A suffix after a tilde, and a candidate of semver, is older than the release.
    Source: deb-version(7), "Sorting algorithm"; semver.org, 2.0.0, item 11
    """
    return _place(version) > _place(other)


def _place(version: str) -> tuple[tuple[int, ...] | int, ...]:
    parts = re.findall(r"(\D*)(\d*)", _CANDIDATE.sub(r"~\1", version))
    place: list[tuple[int, ...] | int] = []
    for text, number in parts:
        # The order is: tilde, end of the text, letters, other characters.
        order = [-1 if sign == "~" else ord(sign) + 256 * (not sign.isalpha()) for sign in text]
        place += [(*order, 0), int(number[:999] or 0)]
    return tuple(place)
