# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about Ubuntu's signed modules for the next kernel."""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.machine import SignedModulesPart
from ansible_collections.metal.gpu.plugins.module_utils.read import signed_modules
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_driver import (
    VERSION,
    parse_loaded_module,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import follow


def observe(raw: Raw) -> SignedModulesPart:
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
