# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What do the results of modules and programs say? No function does I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# By modules and programs; `printed` by those that rehearsal.py asks.
_PRINTED = ("stdout", "printed", "stderr", "results", "failures", "response")
_TELLING = ("msg", "url", "response", "stderr", "module_stderr", "module_stdout")
# How ansible-core 2.16 to 2.21 names an output without a result.
_CUT_SHORT = re.compile(r"MODULE FAILURE\n|deserialization failed")


def cut_short(result: Mapping[str, Any]) -> str:
    """Return why a module gave no result, with its last line; empty if it gave one."""
    if not _CUT_SHORT.search(str(result.get("msg"))):
        return ""
    printed = "\n".join(str(result.get(name) or "") for name in ("module_stdout", "module_stderr"))
    lines = [one.strip() for one in printed.splitlines() if "Shared connection to" not in one]
    last = next((one for one in reversed(lines) if one), "nothing")
    return (
        "the output of the module ended without a result, because the connection ended, the node "
        f"restarted, or the module failed; it last printed: {last}"
    )


def error_of(result: Mapping[str, Any]) -> str:
    """Return what a module and its program say about a failure."""
    if why := cut_short(result):
        return why
    texts = (result.get(name) for name in _TELLING)
    return "\n".join(str(text) for text in texts if text)


def printed_by(result: Mapping[str, Any]) -> str:
    texts = [result[name] for name in _PRINTED if result.get(name)]
    return "\n".join(
        "\n".join(map(str, one)) if isinstance(one, list) else str(one) for one in texts
    )
