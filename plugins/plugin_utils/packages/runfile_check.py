# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask in check mode whether a `.run` file can be had, and hash one that the controller has.

A node does not fetch it for that: it has hundreds of MiB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import Call

UNAVAILABLE, CHECKSUM = "RUNFILE_UNAVAILABLE", "RUNFILE_CHECKSUM"
# Nothing is written there in check mode, but the module wants the folder to exist.
_NOWHERE = "/var/lib/metal-gpu.run"
_PART = 2**20
_GONE = (404, 410)


def question(url: str) -> Call:
    """Return the call by which the node asks a server for the head of the file."""
    options = {"url": url, "dest": _NOWHERE, "mode": "0600", "force": True}
    return Call("ansible.builtin.get_url", options, explains=False, changes=False)


def is_unavailable(result: Mapping[str, Any]) -> bool:
    """Whether the file is not there, or nobody answers.

    A server may refuse the question, but not the file: addresses that are signed are for GET alone.
    """
    status = result.get("status_code", -1)
    return bool(result.get("failed")) and (status in _GONE or int(status or -1) < 0)


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
