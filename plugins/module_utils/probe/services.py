# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find out which program a service runs, with which flags, and which files contain these.

`read_service` does I/O; it takes the root directory as an argument. A running process is the first
source, because only it shows the effect of wrappers, of specifiers, and of edits without a restart.
Without a process, the source is what systemd would start.

Source: proc_pid_cmdline(5), proc_pid_exe(5); cgroups(7) for both versions of control groups.
"""

from __future__ import annotations

import os
from posixpath import basename
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.read import systemd
from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import (
    Flag,
    hide_values,
    parse_flags,
    parse_words,
    with_places,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ansible_collections.metal.gpu.plugins.module_utils.probe.node_files import NodeFiles

PROCESS = "process"
UNIT = "unit"

# Version 2 of control groups, and systemd's own hierarchy with version 1.
_CGROUPS = ("sys/fs/cgroup", "sys/fs/cgroup/systemd")
_DELETED = " (deleted)"  # the file was replaced after the start, for example by an upgrade


class Kind(NamedTuple):
    """A kind of service that this collection observes."""

    program: str
    shown: tuple[str, ...] = ()  # the flags whose values are needed; others may be secret
    environment_files: tuple[str, ...] = ()  # files that admins edit even if no unit reads them


class Process(NamedTuple):
    """A process of a service."""

    program: str | None  # path of its executable; None: cannot be read
    words: tuple[str, ...]
    pid: str


class Service(NamedTuple):
    """What a service runs, or would run."""

    program: str  # its name
    path: str | None  # of the program; None: not found
    starter: str | None  # the first word of ExecStart in the files of the unit
    starter_file: str | None  # the file with this ExecStart
    source: str | None  # of `in_force`: PROCESS, or UNIT without a process
    in_force: tuple[Flag, ...]
    flags: tuple[Flag, ...]  # all flags in files, and flags in force that no file contains


def read_service(
    root: Path, files: NodeFiles, unit: str, kind: Kind, properties: Mapping[str, str]
) -> Service:
    """Read what a unit runs; `properties` are those of `systemctl show`.

    The texts of the unit's files are added to `files`.
    """
    written = _read_files(files, unit, kind)
    words = written.words
    starter = next((word for word in words if word.effective), None)
    process = find_process(root, properties, kind.program)
    flags = parse_flags(words)
    if process:
        in_force, source = parse_words(process.words), PROCESS
    else:
        files.read_all(systemd.parse_environment_files(properties))
        command = systemd.parse_command(properties, files.texts, kind.program)
        in_force, source = parse_words(command), UNIT
        if not command:  # systemd does not answer, or has not loaded the unit
            in_force = tuple(flag for flag in flags if flag.effective)
    return Service(
        program=kind.program,
        path=_find_program(root, kind.program, process, properties),
        starter=starter.text if starter else None,
        starter_file=starter.file if starter else None,
        source=source if process or in_force else None,
        in_force=hide_values(in_force, kind.shown),
        flags=hide_values(with_places(in_force, flags) if process else flags, kind.shown),
    )


def find_process(root: Path, properties: Mapping[str, str], program: str) -> Process | None:
    """Return the process of a service that runs the program, directly or below a wrapper."""
    main = properties.get("MainPID", "0")
    process = _read_process(root, main) if main != "0" else None
    # The name may have a suffix ("kubelet-v1.37"). In the control group, the prefix is not enough,
    # because containerd's shims start with it too.
    if process and basename(process.program or "").startswith(program):
        return process
    for pid in _members(root, properties.get("ControlGroup", "")):
        process = _read_process(root, pid)
        if process and program in (basename(process.program or ""), basename(process.words[0])):
            return process
    return None


def _read_files(files: NodeFiles, unit: str, kind: Kind) -> systemd.Service:
    """Read a unit, its drop-ins, and its environment files."""
    files.read_layered(systemd.UNIT_DIRECTORIES, unit)
    files.read_layered([f"{path}/{unit}.d" for path in systemd.UNIT_DIRECTORIES], "*.conf")
    files.read_all(kind.environment_files)
    files.read_all(systemd.parse_service(files.texts, unit).environment_files)
    return systemd.parse_service(files.texts, unit, kind.environment_files, kind.program)


def _find_program(
    root: Path, name: str, process: Process | None, properties: Mapping[str, str]
) -> str | None:
    """Return the running executable, else the one that systemd would start, if it exists."""
    running = process.program if process else None
    started = systemd.parse_command(properties, {}, name)[:1]
    candidates = [running, *(path for path in started if basename(path) == name)]
    return next((path for path in candidates if path and (root / path[1:]).is_file()), None)


def _members(root: Path, control_group: str) -> Iterator[str]:
    """Yield the ids of the processes in a control group and its children."""
    for hierarchy in _CGROUPS if control_group else ():
        for folder, _folders, names in os.walk(root / hierarchy / control_group.lstrip("/")):
            if "cgroup.procs" in names:
                try:
                    with open(os.path.join(folder, "cgroup.procs")) as file:
                        yield from file.read().split()
                except OSError:  # the control group is gone
                    continue


def _read_process(root: Path, pid: str) -> Process | None:
    """Read a process; None if it has ended, or is a kernel thread."""
    folder = root / "proc" / pid
    try:
        words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return None
    try:
        program: str | None = os.readlink(folder / "exe")
    except OSError:
        program = None
    if program and program.endswith(_DELETED):
        program = program[: -len(_DELETED)]
    return Process(program, tuple(words), pid) if words else None
