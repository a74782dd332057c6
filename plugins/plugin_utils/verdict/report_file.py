# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read and write the report of verify on the controller. A report changes no verdict.

Both functions do I/O. What fails is a finding.
"""

from __future__ import annotations

import os
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
    """Replace the report as a whole; return why that failed."""
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ")
    text = former.document(verdicts, entries, date)
    try:
        place = Path(path).absolute()
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=place.parent, prefix=f".{place.name}.", delete=False
        ) as file:
            file.write(text)
        try:
            os.replace(file.name, place)
        except OSError:
            os.unlink(file.name)
            raise
    except OSError as error:
        evidence = {"path": path, "done": "written", "error": str(error)}
        return [finding("REPORT_UNUSABLE", "localhost", **evidence)]
    return []
