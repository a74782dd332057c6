# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What a node hands over to the controller, which interprets it. No function does I/O.

`values` has what only one component reads, by name of the component. Each file in
`probe/components` has the type of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping


class Asked(TypedDict):
    """What was asked for."""

    packages: list[str]
    repositories: list[str]
    units: list[str]


class Clock(TypedDict):
    """Both clocks at the same time, to compare times of systemd with times of files."""

    now: float
    uptime: float


class OutputData(TypedDict):
    """The result of a command."""

    rc: int | None
    stdout: str
    stderr: str


class FlagData(TypedDict):
    """A flag of a service, and the place that contains it."""

    name: str
    value: str | None  # `***` if it is not needed, as it can be secret
    file: str | None  # None: the process runs with it, but no file of the unit has it
    variable: str | None  # the variable in `file` that has it
    effective: bool  # false: another file overrides it, or the unit does not use it


class ServiceData(TypedDict):
    """What a service runs, or would run."""

    program: str
    path: str | None
    starter: str | None
    starter_file: str | None
    source: str | None
    in_force: list[FlagData]
    flags: list[FlagData]


class ProgramFileData(TypedDict):
    """The file of a program."""

    path: str  # also if it is not there
    exists: bool
    executable: bool


class RawData(TypedDict):
    """Everything that was read on a node."""

    asked: Asked
    architecture: str
    clock: Clock
    units: Mapping[str, Mapping[str, str]]
    services: Mapping[str, ServiceData]
    programs: Mapping[str, str | None]  # paths
    program_files: Mapping[str, ProgramFileData]
    exists: Mapping[str, bool]
    found: Mapping[str, list[str]]  # paths that match patterns
    texts: Mapping[str, str]  # of files, by path
    errors: Mapping[str, str]  # of files that cannot be read
    modified: Mapping[str, float]  # when files were written
    own_files: list[str]
    outputs: Mapping[str, OutputData]
    values: Mapping[str, object]
