# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The raw data of a node, with the questions that several components ask."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import cached_property
from typing import cast

from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import Program, Version
from ansible_collections.metal.gpu.plugins.module_utils.observed.gpus import Unit
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.ours import Values
from ansible_collections.metal.gpu.plugins.module_utils.probe.raw_data import (
    Asked,
    FlagData,
    ProgramFileData,
    RawData,
    ServiceData,
)
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    document_history_files,
    packages,
    systemd,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import Flag
from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output
from ansible_collections.metal.gpu.plugins.module_utils.read.version import parse_version


class Raw:
    """The raw data, with helpers."""

    def __init__(self, data: RawData) -> None:
        self._data = data
        self.asked: Asked = data["asked"]
        self.architecture = data["architecture"]
        self.clock = data["clock"]
        self.units = data["units"]
        self.programs = data["programs"]
        self.exists = data["exists"]
        self.found = data["found"]
        self.texts = data["texts"]
        self.errors = data["errors"]
        self.modified = data["modified"]
        self.own_files = data["own_files"]
        self.outputs = {name: Output(**output) for name, output in data["outputs"].items()}

    def without(self, *names: str) -> Raw:
        """Return the raw data without the outputs of these programs."""
        found = copy.copy(self)
        found.outputs = {name: one for name, one in self.outputs.items() if name not in names}
        return found

    def values(self, component: str) -> object:
        """Return what only the probe of a component reads; it has the type."""
        return self._data["values"][component]

    # --- outputs of programs ---------------------------------------------------------------

    def stdout(self, name: str) -> str:
        return self.outputs[name].stdout if name in self.outputs else ""

    def exit_code(self, name: str) -> int | None:
        """Return the exit code of a program; None if it timed out or was not run."""
        return self.outputs[name].rc if name in self.outputs else None

    # --- files -----------------------------------------------------------------------------

    def text(self, path: str) -> str | None:
        """Return the stripped text of a file; None if it is absent or empty."""
        return self.texts.get(path, "").strip() or None

    def find(self, *patterns: str) -> list[str]:
        """Return the paths of the texts that match a pattern, sorted."""
        return sorted(
            path for path in self.texts for pattern in patterns if _matches(path, pattern)
        )

    def imported(self, *patterns: str) -> list[str]:
        """Return the paths of the texts that a program imports, sorted. No `*` is for a slash.

        Source: filepath.Glob of Go.
        """
        return sorted(
            path
            for pattern in patterns
            for path in self.find(pattern)
            if path.count("/") == pattern.count("/")
        )

    def unread(self, *patterns: str) -> list[str]:
        """Return the paths of unreadable files that match a pattern, sorted."""
        return sorted(path for path in self.errors if any(_matches(path, one) for one in patterns))

    def file_exists(self, path: str | None) -> bool | None:
        """Tell whether a file exists; None if that cannot be read."""
        return None if path in self.errors else path in self.texts

    def read_error(self, path: str | None) -> str | None:
        """Return why a file cannot be read; None if it can be, or is absent."""
        return f"{path}: {self.errors[path]}" if path and path in self.errors else None

    def program_files(self, names: Iterable[str]) -> dict[str, ProgramFileData]:
        return {name: self._data["program_files"][name] for name in names}

    # --- units and their services ----------------------------------------------------------

    def is_active(self, unit: str) -> bool | None:
        """Tell whether a unit runs; None if systemd does not report its state."""
        state = self.units.get(unit, {}).get("ActiveState")
        return state == "active" if state else None

    def needs_reload(self, unit: str) -> bool:
        """Tell whether the files of a unit changed since systemd read them."""
        return self.units.get(unit, {}).get("NeedDaemonReload") == "yes"

    def is_enabled(self, unit: str) -> bool:
        return self.units.get(unit, {}).get("UnitFileState") in systemd.ENABLED

    def is_loaded(self, unit: str) -> bool:
        return self.units.get(unit, {}).get("LoadState") == "loaded"

    def unit(self, name: str) -> Unit:
        return {
            "installed": self.is_loaded(name),
            "enabled": self.is_enabled(name),
            "active": bool(self.is_active(name)),
        }

    def changed_since_start(self, unit: str, patterns: Iterable[str]) -> list[str]:
        """Return which of a unit's files were written after it was started."""
        active_s = systemd.seconds_active(self.units.get(unit, {}), self.clock["uptime"])
        if active_s is None:
            return []
        return self.written_after(self.clock["uptime"] - active_s, patterns)

    def changed_since_reload(self, unit: str, patterns: Iterable[str]) -> list[str]:
        """Return which files were written after systemd last started or reloaded a unit."""
        active_s = systemd.seconds_unchanged(self.units.get(unit, {}), self.clock["uptime"])
        if active_s is None:
            return []
        return self.written_after(self.clock["uptime"] - active_s, patterns)

    def written_after(self, since_boot_s: float, patterns: Iterable[str]) -> list[str]:
        """Return which files were written later than this, in seconds since the boot."""
        wanted, now = tuple(patterns), self.clock["now"]
        start = now - (self.clock["uptime"] - since_boot_s)
        return [
            path
            for path, modified in self.modified.items()
            # A time in the future is no evidence.
            if start < modified <= now and any(_matches(path, pattern) for pattern in wanted)
        ]

    def edited(self, histories: Iterable[str], patterns: Iterable[str]) -> list[str]:
        """Return the files, of these patterns, whose histories of edits these are."""
        wanted = tuple(patterns)
        paths = [self.histories[one].path for one in histories]
        return [path for path in paths if any(_matches(path, pattern) for pattern in wanted)]

    @cached_property
    def histories(self) -> dict[str, document_history_files.Edited]:
        """Who edited which file, by the paths of the histories.

        A history is named after the real path of its file. Here the path is the one that the
        components read, and that the configuration of an engine has.
        """
        links = cast(Values, self.values("ours"))["links"]
        found = {
            path: document_history_files.parse_file_name(path)
            for path in self.find(document_history_files.PATTERN)
        }
        return {
            history: one._replace(path=links.get(one.path, one.path))
            for history, one in found.items()
        }

    def history(self, path: str, actor: str) -> str | None:
        """Return the path of the history of an actor's edits of a file; None if there is none."""
        edited = document_history_files.Edited(path, actor)
        return next((history for history, one in self.histories.items() if one == edited), None)

    def service(self, unit: str) -> ServiceData:
        return self._data["services"][unit]

    def in_force(self, unit: str) -> tuple[Flag, ...]:
        """Return the flags that a service runs with, or would start with."""
        return as_flags(self.service(unit)["in_force"])

    def program(self, unit: str, name: str, output: str) -> Program:
        """Return whether a service's program is installed and runs, and its version."""
        is_active = self.is_active(unit)
        path = self.programs[name]
        # A running program is installed, even if its file is unknown.
        installed = path is not None or bool(is_active)
        return {
            "installed": installed,
            "path": path,
            **self.version(output, unit if is_active else None),
            "running": installed and is_active,
        }

    def version(self, output: str, active_unit: str | None) -> Version:
        """Return the version that a program printed, or what it printed in its place."""
        version, error = parse_version(self.stdout(output)), None
        if version is None and output in self.outputs:
            answer = self.outputs[output]
            printed = " ".join(f"{answer.stdout} {answer.stderr}".split())
            nothing = "timeout" if answer.rc is None else f"exit code {answer.rc}"
            error = printed or f"nothing ({nothing})"
        elif version is None and active_unit:
            error = f"nothing, because the program that {active_unit} runs cannot be found"
        return {"version": version, "version_error": error}

    # --- packages --------------------------------------------------------------------------

    @cached_property
    def packages(self) -> dict[str, packages.Package]:
        """The installed packages, by name."""
        found = packages.parse_packages(self.stdout("packages"), self.architecture)
        if any(package.held is None for package in found.values()):
            return packages.with_locks(found, self.texts.get(packages.VERSION_LOCKS, ""))
        return found

    def versions(self, belongs: Callable[[str], bool]) -> dict[str, str]:
        """Return the versions of the installed packages that belong to something, by name."""
        return {name: package.version for name, package in self.packages.items() if belongs(name)}


def _matches(path: str, pattern: str) -> bool:
    """Do what fnmatchcase does. Each node has a process of its own, which would compile each
    pattern as a regular expression; nearly all of them have one asterisk.
    """
    head, star, tail = pattern.partition("*")
    if not star or any(sign in head + tail for sign in "*?["):
        return fnmatchcase(path, pattern)
    is_long = len(path) >= len(head) + len(tail)
    return is_long and path.startswith(head) and path.endswith(tail)


def as_flags(data: Iterable[FlagData]) -> tuple[Flag, ...]:
    return tuple(Flag(**flag) for flag in data)
