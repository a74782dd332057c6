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
from ansible_collections.metal.gpu.plugins.module_utils.read.version import parse_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading
    from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output


def _named_config(reading: Reading) -> str | None:
    """Return the configuration file in containerd's flags."""
    return value_of(reading.services[containerd.UNIT].in_force, *containerd.CONFIG_FLAGS)


def _read(reading: Reading) -> None:
    """Read the configuration, and the files that it and its imported files import."""
    config = _named_config(reading) or containerd.DEFAULT_CONFIG
    reading.files.read(config)
    left, done = [config], {config}
    while left:
        path = left.pop()
        patterns = containerd.mentioned_files(path, reading.files.texts.get(path, ""))
        before = set(reading.files.texts)
        reading.files.read_all(patterns)
        # A file that imports itself is read once.
        new = sorted(set(reading.files.texts) - before - done)
        done.update(new)
        left += new


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


def _follow_up(reading: Reading, outputs: Mapping[str, Output]) -> dict[str, Command]:
    """Ask again where the first answer of this version is incomplete."""
    version = parse_version(outputs["containerd"].stdout) if "containerd" in outputs else None
    dump = _commands(reading)["containerd_dump"]
    if not version or not containerd.needs_migration(version) or dump.argv[-1] != "dump":
        return {}
    return {"containerd_dump": dump._replace(argv=(*dump.argv[:-1], "migrate"))}


PROBE = Probe(
    services={containerd.UNIT: Kind("containerd", containerd.CONFIG_FLAGS)},
    programs=("containerd",),
    program_files={"runc": program_files.DIRECTORIES},
    read=_read,
    commands=_commands,
    follow_up=_follow_up,
)
