# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask in check mode whether a `.run` file can be had, and hash one that the controller has.

A node does not fetch it for that: it has hundreds of MiB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

UNAVAILABLE, CHECKSUM = "RUNFILE_UNAVAILABLE", "RUNFILE_CHECKSUM"
_PART = 2**20
_GONE = (404, 410)


def is_unavailable(result: Mapping[str, object]) -> bool:
    """Whether the file is not there, or nobody answers.

    A server may refuse the question, but not the file: addresses that are signed are for GET alone.
    """
    status = result.get("status_code", -1)
    is_gone = isinstance(status, int) and (status in _GONE or status < 0)
    return bool(result.get("failed")) and is_gone


def wrong_checksum(path: str, expected: str) -> str | None:
    """Return what is wrong with the checksum of a file on the controller. Does I/O."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while part := file.read(_PART):
            digest.update(part)
    found = digest.hexdigest()
    if found == expected.lower():
        return None
    return f"the checksum of {path} is sha256:{found}, and not sha256:{expected.lower()}"
