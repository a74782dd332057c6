# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read and write the report of verify on the controller. A report changes no verdict.

`read` and `write` do I/O. What fails is a finding.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict import former


def read(path: str) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Return the entries of the former report, and why there are none."""
    if not path or not os.path.lexists(path):
        return {}, []
    try:
        return former.parse(Path(path).read_text(encoding="utf-8")), []
    except (OSError, ValueError) as error:
        evidence = {"path": path, "done": "read", "error": str(error)}
        return {}, [finding("REPORT_UNUSABLE", "localhost", **evidence)]


def write(
    path: str, verdicts: list[dict[str, Any]], entries: Mapping[str, Any]
) -> list[dict[str, str]]:
    """Write the report; return why that failed."""
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ")
    text = former.document(verdicts, entries, date)
    try:
        _replace(Path(os.path.realpath(path)), text)
    except OSError as error:
        evidence = {"path": path, "done": "written", "error": str(error)}
        return [finding("REPORT_UNUSABLE", "localhost", **evidence)]
    return []


def _replace(place: Path, text: str) -> None:
    """Replace a file as a whole, but not its mode. A link to it stays a link."""
    descriptor, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            if place.exists():
                os.chmod(name, stat.S_IMODE(place.stat().st_mode))
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, place)
    except BaseException:
        os.unlink(name)
        raise
