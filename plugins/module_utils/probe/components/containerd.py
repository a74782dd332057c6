# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read about containerd."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.probe import distribution, program_files
from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
from ansible_collections.metal.gpu.plugins.module_utils.probe.services import Kind
from ansible_collections.metal.gpu.plugins.module_utils.read import containerd, distributions
from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import value_of
from ansible_collections.metal.gpu.plugins.module_utils.read.version import parse_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading
    from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output


class Values(TypedDict):
    """What only this component reads."""

    home: distribution.ContainerdData | None  # None: containerd.service
    is_managed: bool  # its distribution generates the configuration
    missing_specs: list[str]  # files with the defaults of a runtime's containers that do not exist


def _named_config(reading: Reading) -> str | None:
    """Return the configuration file in containerd's flags."""
    home = distribution.read_containerd(reading)
    if home:
        return home["config"]
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
    home = distribution.find_home(reading)
    if home:
        reading.files.read_all(distributions.templates(home, config))
        reading.files.read_all([f"{home.watched}/*.toml"] if home.watched else [])


def _values(reading: Reading) -> Values:
    home, data = distribution.find_home(reading), distribution.read_containerd(reading)
    text = reading.files.texts.get(data["config"]) if data else None
    named = {
        name
        for path, content in reading.files.texts.items()
        if path.endswith(".toml")
        for name in containerd.mentioned_specs(content)
    }
    return {
        "home": data,
        "is_managed": home is not None and distributions.manages(home, text),
        "missing_specs": sorted(name for name in named if not reading.files.exists(name)),
    }


def _times(reading: Reading) -> dict[str, float | None]:
    """Return when the runtime was installed: a distribution looks for it when it starts."""
    if distribution.find_home(reading) is None:
        return {}
    return {distributions.RUNTIME: reading.files.appeared(distributions.RUNTIME)}


def _commands(reading: Reading) -> dict[str, Command]:
    config, program = _named_config(reading), "containerd"
    home = distribution.read_containerd(reading)
    if home:
        if home["path"] is None:
            return {}  # another containerd knows nothing about it
        program = home["path"]
        if not reading.files.exists(home["config"]):
            return {"containerd": Command((program, "--version"))}
    if config is None and reading.files.exists(containerd.DEFAULT_CONFIG):
        config = containerd.DEFAULT_CONFIG
    # `config dump` of containerd 1.x fails without a file, although containerd starts without it.
    dump = ("--config", config, "config", "dump") if config else ("config", "default")
    return {
        "containerd": Command((program, "--version")),
        "containerd_dump": Command((program, *dump)),
    }


def _follow_up(reading: Reading, outputs: Mapping[str, Output]) -> dict[str, Command]:
    """Ask again where the first answer of this version is incomplete."""
    version = parse_version(outputs["containerd"].stdout) if "containerd" in outputs else None
    dump = _commands(reading).get("containerd_dump")
    if (
        not version
        or not dump
        or not containerd.needs_migration(version)
        or dump.argv[-1] != "dump"
    ):
        return {}
    return {"containerd_dump": dump._replace(argv=(*dump.argv[:-1], "migrate"))}


PROBE = Probe(
    services={containerd.UNIT: Kind("containerd", containerd.CONFIG_FLAGS)},
    programs=("containerd",),
    program_files={"runc": program_files.DIRECTORIES},
    read=_read,
    values=_values,
    times=_times,
    commands=_commands,
    follow_up=_follow_up,
)
