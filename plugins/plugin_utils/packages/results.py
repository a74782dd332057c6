# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What do the results of modules and programs say? No function does I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# By modules and programs; `printed` by those that rehearsal.py asks.
_PRINTED = ("stdout", "printed", "stderr", "results", "failures", "response")
_TELLING = ("msg", "url", "response", "stderr", "module_stderr", "module_stdout")


def error_of(result: Mapping[str, Any]) -> str:
    """Return what a module and its program say about a failure."""
    texts = (result.get(name) for name in _TELLING)
    return "\n".join(str(text) for text in texts if text)


def printed_by(result: Mapping[str, Any]) -> str:
    texts = [result[name] for name in _PRINTED if result.get(name)]
    return "\n".join(
        "\n".join(map(str, one)) if isinstance(one, list) else str(one) for one in texts
    )
