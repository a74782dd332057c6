# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about Ubuntu's signed modules for the next kernel. No I/O."""

from __future__ import annotations

from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.read import signed_modules
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_driver import (
    VERSION,
    parse_loaded_module,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import follow


class Missing(TypedDict):
    """The package that the newest installed kernel lacks."""

    package: str
    error: str | None  # why apt does not install them without other changes


class Observed(TypedDict):
    """None: the next kernel has its modules, or the running one has none either."""

    # Ubuntu's modules that the newest kernel lacks; None: it has them, or no kernel has
    signed_modules: Missing | None


def observe(raw: Raw) -> Observed:
    release = raw.text("/proc/sys/kernel/osrelease") or ""
    loaded = parse_loaded_module(raw.texts.get(VERSION, ""))
    name = signed_modules.missing(raw.packages, release, loaded)
    if name is None:
        return {"signed_modules": None}
    output = raw.outputs.get("signed_modules")
    answer = (
        follow.Answer(output.rc == 0, output.stdout, output.stderr)
        if output
        else follow.Answer(is_possible=False, printed="", error="E: apt-get did not answer")
    )
    return {"signed_modules": {"package": name, "error": follow.problem(answer)}}
