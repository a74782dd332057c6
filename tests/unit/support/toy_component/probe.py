# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A component as it is added: what to read. It would be in module_utils/probe/components."""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe, Reading


def _commands(_reading: Reading) -> dict[str, Command]:
    return {"toy": Command(("toyd", "--version"))}


PROBE = Probe(units=("toyd.service",), files=("/etc/toyd.conf",), commands=_commands)
