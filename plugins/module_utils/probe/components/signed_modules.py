# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to ask apt about Ubuntu's signed modules, if the next kernel lacks them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
from ansible_collections.metal.gpu.plugins.module_utils.read import packages, signed_modules
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_driver import (
    VERSION,
    parse_loaded_module,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading
    from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output


def _follow_up(reading: Reading, outputs: Mapping[str, Output]) -> dict[str, Command]:
    listed = outputs.get("packages")
    if not listed or signed_modules.MODULES not in listed.stdout:
        return {}  # nearly every node: nothing to parse
    installed = packages.parse_packages(listed.stdout, os.uname().machine)
    loaded = parse_loaded_module(reading.files.texts.get(VERSION, ""))
    name = signed_modules.missing(installed, reading.release, loaded)
    return {"signed_modules": Command(signed_modules.simulation(name))} if name else {}


PROBE = Probe(follow_up=_follow_up)
