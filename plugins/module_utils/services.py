# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What does a service run, with which flags, and in which files are these written?

`read_service` does I/O, below a root directory that tests plant. The process that runs is asked
first, because only it knows what a wrapper, a specifier or an edit without a restart has come to.
Where there is none, systemd tells what it would start.

Source: proc_pid_cmdline(5), proc_pid_exe(5); cgroups(7) for both versions of control groups.
"""

from __future__ import annotations

import os
from posixpath import basename
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils import (
    containerd,
    crio,
    docker,
    kubelet,
    systemd,
)
from ansible_collections.metal.gpu.plugins.module_utils.command_line import (
    Flag,
    hide_values,
    parse_flags,
    parse_words,
    with_places,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ansible_collections.metal.gpu.plugins.module_utils.node_files import NodeFiles

PROCESS = "process"
UNIT = "unit"

# The version 2 of control groups, and systemd's own hierarchy beside version 1.
_CGROUPS = ("sys/fs/cgroup", "sys/fs/cgroup/systemd")
_DELETED = " (deleted)"  # the file was replaced since, as an upgrade does


class Kind(NamedTuple):
    """A service that this collection knows."""

    program: str
    shown: tuple[str, ...] = ()  # the flags whose values are needed; others may be secret
    environment_files: tuple[str, ...] = ()  # people write to them, whether the unit reads them


KINDS = {
    kubelet.UNIT: Kind("kubelet", kubelet.FLAGS, kubelet.ENVIRONMENT_FILES),
    containerd.UNIT: Kind("containerd", containerd.CONFIG_FLAGS),
    docker.UNIT: Kind("dockerd", docker.FLAGS),
    docker.CRI_UNIT: Kind("cri-dockerd"),
    crio.UNIT: Kind("crio"),
}


class Process(NamedTuple):
    """A process of a service."""

    program: str | None  # path of the file it runs; None: nobody may know
    words: tuple[str, ...]


class Service(NamedTuple):
    """What a service runs, or would run."""

    path: str | None  # of the program; None: it is nowhere
    starter: str | None  # what the files of the unit start
    starter_file: str | None  # which of the files says so
    source: str | None  # of the flags in force: PROCESS, or UNIT where none runs
    in_force: tuple[Flag, ...]
    flags: tuple[Flag, ...]  # every one in a file, and those in force that are in none


def read_service(root: Path, files: NodeFiles, unit: str, properties: Mapping[str, str]) -> Service:
    """Read what a unit runs; `properties` are those of `systemctl show`.

    The files of the unit are read, and kept in `files`.
    """
    kind = KINDS[unit]
    written = _read_files(files, unit, kind)
    words = written.words
    # The first word of the command, where the files have one.
    starter = next((word for word in words if word.effective), None)
    process = find_process(root, properties, kind.program)
    flags = parse_flags(words)
    if process:
        in_force, source = parse_words(process.words), PROCESS
    else:
        files.read_all(systemd.parse_environment_files(properties))
        command = systemd.parse_command(properties, files.texts, kind.program)
        in_force, source = parse_words(command), UNIT
        if not command:  # no systemd answers, or it does not know the unit yet
            in_force = tuple(flag for flag in flags if flag.effective)
    return Service(
        path=_find_program(root, kind.program, process, properties),
        starter=starter.text if starter else None,
        starter_file=starter.file if starter else None,
        source=source if process or in_force else None,
        in_force=hide_values(in_force, kind.shown),
        flags=hide_values(with_places(in_force, flags) if process else flags, kind.shown),
    )


def find_process(root: Path, properties: Mapping[str, str], program: str) -> Process | None:
    """Return the process of a service that runs the program, which a wrapper may have started."""
    main = properties.get("MainPID", "0")
    process = _read_process(root, main) if main != "0" else None
    # "kubelet-v1.37" is a kubelet; other processes may be shims of the program.
    if process and basename(process.program or "").startswith(program):
        return process
    for pid in _members(root, properties.get("ControlGroup", "")):
        process = _read_process(root, pid)
        if process and program in (basename(process.program or ""), basename(process.words[0])):
            return process
    return None


def _read_files(files: NodeFiles, unit: str, kind: Kind) -> systemd.Service:
    """Read a unit, its drop-ins, and the environment files that it names."""
    files.read_layered(systemd.UNIT_DIRECTORIES, unit)
    files.read_layered([f"{path}/{unit}.d" for path in systemd.UNIT_DIRECTORIES], "*.conf")
    files.read_all(kind.environment_files)
    files.read_all(systemd.parse_service(files.texts, unit).environment_files)
    return systemd.parse_service(files.texts, unit, kind.environment_files, kind.program)


def _find_program(
    root: Path, name: str, process: Process | None, properties: Mapping[str, str]
) -> str | None:
    """Return the file that runs, else the one that systemd would start, if it is still there."""
    running = process.program if process else None
    started = systemd.parse_command(properties, {}, name)[:1]
    candidates = [running, *(path for path in started if basename(path) == name)]
    return next((path for path in candidates if path and (root / path[1:]).is_file()), None)


def _members(root: Path, control_group: str) -> Iterator[str]:
    """Yield the ids of the processes in a control group, and in those below it."""
    for hierarchy in _CGROUPS if control_group else ():
        for folder, _folders, names in os.walk(root / hierarchy / control_group.lstrip("/")):
            if "cgroup.procs" in names:
                try:
                    with open(os.path.join(folder, "cgroup.procs")) as file:
                        yield from file.read().split()
                except OSError:  # it has ended meanwhile
                    continue


def _read_process(root: Path, pid: str) -> Process | None:
    """Read a process; None where it has ended, or is a thread of the kernel."""
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
    return Process(program, tuple(words)) if words else None
