# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read about containerd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.probe import program_files
from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
from ansible_collections.metal.gpu.plugins.module_utils.probe.services import Kind
from ansible_collections.metal.gpu.plugins.module_utils.read import containerd
from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import value_of

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading


def _named_config(reading: Reading) -> str | None:
    """Return the configuration file in containerd's flags."""
    return value_of(reading.services[containerd.UNIT].in_force, *containerd.CONFIG_FLAGS)


def _read(reading: Reading) -> None:
    """Read the configuration and the files that it imports."""
    config = _named_config(reading) or containerd.DEFAULT_CONFIG
    text = reading.files.read(config) or ""
    reading.files.read_all(containerd.mentioned_files(config, text))


def _commands(reading: Reading) -> dict[str, Command]:
    config = _named_config(reading)
    if config is None and reading.files.exists(containerd.DEFAULT_CONFIG):
        config = containerd.DEFAULT_CONFIG
    # `config dump` of containerd 1.x fails without a file, although containerd starts without it.
    dump = ("--config", config, "config", "dump") if config else ("config", "default")
    return {
        "containerd": Command(("containerd", "--version")),
        "containerd_dump": Command(("containerd", *dump)),
    }


PROBE = Probe(
    services={containerd.UNIT: Kind("containerd", containerd.CONFIG_FLAGS)},
    programs=("containerd",),
    program_files={"runc": program_files.DIRECTORIES},
    read=_read,
    commands=_commands,
)
