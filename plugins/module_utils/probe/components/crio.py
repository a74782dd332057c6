# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read about CRI-O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
from ansible_collections.metal.gpu.plugins.module_utils.probe.services import Kind
from ansible_collections.metal.gpu.plugins.module_utils.read import crio

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading


def _read(reading: Reading) -> None:
    """Read the OCI hooks, also those in folders that the configuration names."""
    texts = [text for path, text in reading.files.texts.items() if path.startswith("/etc/crio/")]
    named = [folder for text in texts for folder in crio.mentioned_hooks_dirs(text)]
    reading.files.read_all(f"{folder}/*.json" for folder in dict.fromkeys((*crio.HOOKS, *named)))


def _commands(_reading: Reading) -> dict[str, Command]:
    return {
        "crio": Command(("crio", "--version")),
        "crio_config": Command(("crio", "status", "config")),
    }


PROBE = Probe(
    services={crio.UNIT: Kind("crio")},
    files=crio.CONFIG_PATTERNS,
    programs=("crio", "conmon"),
    read=_read,
    commands=_commands,
)
