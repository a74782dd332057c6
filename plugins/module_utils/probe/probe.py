# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read on a node for one component: a `Probe`, and what its functions may use.

A probe has no opinions. It lists files, units and programs. Its functions add what depends on
something that was read before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import read_outputs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import (
        Command,
        RunCommand,
    )
    from ansible_collections.metal.gpu.plugins.module_utils.probe.node_files import NodeFiles
    from ansible_collections.metal.gpu.plugins.module_utils.probe.services import Kind, Service
    from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output

# Directories of configuration in the order of their precedence.
LAYERS = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")


class Node(NamedTuple):
    """The access to the node; tests replace it."""

    root: Path
    run_command: RunCommand
    find_program: Callable[[str], str | None]


class Request(NamedTuple):
    """The options of the module."""

    packages: tuple[str, ...] = ()  # names or patterns
    repositories: tuple[str, ...] = ()
    device_users: bool = False


class Reading(NamedTuple):
    """What was read so far."""

    node: Node
    request: Request
    units: Mapping[str, Mapping[str, str]]  # all properties; they may contain secrets
    services: Mapping[str, Service]
    files: NodeFiles  # the controller gets these texts
    unit_files: NodeFiles  # texts of units can contain secrets, so they stay on the node
    values: Mapping[str, Mapping[str, object]] = MappingProxyType({})  # by component, in its order
    outputs: Mapping[str, Output] = MappingProxyType({})  # of all commands, for late values

    @property
    def release(self) -> str:
        """The running kernel."""
        return self.files.texts.get("/proc/sys/kernel/osrelease", "").strip()

    def find_program(self, name: str) -> str | None:
        """Return the program that a service runs, else the one in the PATH."""
        running = (one.path for one in self.services.values() if one.program == name and one.path)
        return next(running, None) or self.node.find_program(name)

    def run(self, commands: Mapping[str, Command]) -> dict[str, Output]:
        """Run the commands whose programs exist. A path is what a service runs."""
        present = {}
        for name, command in commands.items():
            first = command.argv[0]
            program = first if first.startswith("/") else self.find_program(first)
            if program:
                present[name] = command._replace(argv=(program, *command.argv[1:]))
        return read_outputs(present, self.node.run_command)


class Layered(NamedTuple):
    """Files of a configuration directory that exists below each of LAYERS."""

    directory: str
    pattern: str
    # One of what a text must contain to be sent to the controller; empty: any text.
    containing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Probe:
    """What to read for one component. The keys of all mappings are names in the raw data."""

    units: tuple[str, ...] = ()
    services: Mapping[str, Kind] = field(default_factory=dict)  # units whose command line counts
    # The same for units whose names are known only on the node, by patterns of their files.
    named_services: Mapping[str, Kind] = field(default_factory=dict)
    files: tuple[str, ...] = ()  # paths, or patterns of paths
    layered: tuple[Layered, ...] = ()
    exists: Mapping[str, str] = field(default_factory=dict)  # paths; {release} is the kernel's
    found: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # patterns of paths
    programs: tuple[str, ...] = ()  # whose paths are part of the observation
    program_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by directories
    own_files: Mapping[str, str] = field(default_factory=dict)  # that a role writes, and the role
    # Read the files whose names are known only now.
    read: Callable[[Reading], None] = lambda _reading: None
    values: Callable[[Reading], Mapping[str, object]] = lambda _reading: {}
    # Return when files were written, besides those that were read.
    times: Callable[[Reading], Mapping[str, float | None]] = lambda _reading: {}
    commands: Callable[[Reading], Mapping[str, Command]] = lambda _reading: {}
    # Return the commands that are necessary because of the outputs of all first commands.
    follow_up: Callable[[Reading, Mapping[str, Output]], Mapping[str, Command]] = (
        lambda _reading, _outputs: {}
    )
    # Return further values: those that a command may change, and those that depend on an output.
    late_values: Callable[[Reading], Mapping[str, object]] = lambda _reading: {}
