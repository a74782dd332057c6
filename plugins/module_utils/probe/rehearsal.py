# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Ask the package manager what it would do, with files of its own in a temporary folder.

The request is data: plugin_utils/packages/rehearsal.py writes it. `rehearse` does I/O, below its
folder only; the programs that it runs get their own indexes and caches there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

# In texts and in programs, it stands for the folder.
FOLDER = "@FOLDER@"

Run = Callable[[list[str]], tuple[int, str, str]]


class Program(TypedDict, total=False):
    """A program that runs if those before it succeeded."""

    argv: list[str]
    if_old: bool  # only if the index is old
    success: str  # what it prints if it succeeds with the status of a failure


class Old(TypedDict):
    """The index is old if the first of these files that exists is."""

    files: list[str]
    seconds: int


class Question(TypedDict, total=False):
    """What to prepare in the folder, and what to run. Paths are relative to the folder."""

    folders: list[str]
    files: dict[str, str]  # texts, keyed by path
    links: list[tuple[str, str]]  # a folder here, and the node's whose files get links there
    copies: list[tuple[str, str]]  # a folder here, and the node's that is copied
    old: Old
    programs: list[Program]
    answers: dict[str, list[str]]  # what to ask after a failure, keyed by name
    tells: dict[str, list[str]]  # what to ask after success, likewise


class Answer(TypedDict):
    """What the last program printed, its error if it failed, and the answers.

    After a failure, `update` is what the programs before the last one printed: apt succeeds without
    a repository that does not answer, and only warns.
    """

    printed: str
    error: str | None
    answers: dict[str, str]


def rehearse(request: Question, run: Run, now: float, parent: Path) -> Answer:
    """Prepare a folder, run the programs there, and delete it.

    `parent` is where the folder is. `run` runs a program; it returns its exit status and what it
    printed. Raises OSError.
    """
    with tempfile.TemporaryDirectory(prefix="metal-gpu-", dir=parent) as name:
        folder = Path(name)
        # The user of apt's downloads has to get through. Only root can read the sources.
        folder.chmod(0o711)
        _prepare(folder, request)
        is_old = _is_old(request, now)
        printed = ""
        error: str | None = None
        earlier = ""
        for program in request["programs"]:
            if program.get("if_old") and not is_old:
                continue
            status, printed, error = run(_filled(program["argv"], folder))
            # dnf declines with the status of a failure.
            words = program.get("success")
            if status and not (words and words in f"{printed}{error}"):
                break
            earlier += f"{printed}{error}"
            error = None
        answers = {} if error is None or not earlier else {"update": earlier}
        asked = request.get("tells", {}) if error is None else request.get("answers", {})
        for about, argv in asked.items():
            _status, out, err = run(_filled(argv, folder))
            answers[about] = f"{out}{err}"
        return {"printed": printed, "error": error, "answers": answers}


def _prepare(folder: Path, request: Question) -> None:
    for name in request.get("folders", []):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, place in request.get("copies", []):
        if os.path.isdir(place):
            _copy(place, folder / name)
    for name, place in request.get("links", []):
        here = folder / name
        here.mkdir(parents=True, exist_ok=True)
        for entry in sorted(os.scandir(place), key=_name) if os.path.isdir(place) else []:
            if entry.is_file() and entry.name != "lock" and not (here / entry.name).exists():
                (here / entry.name).symlink_to(entry.path)
    for name, text in request.get("files", {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            path.unlink()  # the node's file of this name
        path.touch(0o600)
        path.write_text(text.replace(FOLDER, str(folder)), encoding="utf-8")


def _copy(source: str, target: Path) -> None:
    """Copy a folder in use: files may go meanwhile. A link becomes a copy, safe to write to."""
    ignored = shutil.ignore_patterns("*.rpm", "*.pid")
    try:
        shutil.copytree(source, target, ignore=ignored)
    except shutil.Error as error:
        if any(os.path.exists(path) for path, _target, _why in error.args[0]):
            raise


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _is_old(request: Question, now: float) -> bool:
    old = request.get("old")
    if not old:
        return True
    for path in old["files"]:
        if os.path.exists(path):
            return now - os.stat(path).st_mtime > old["seconds"]
    return True


def _filled(argv: list[str], folder: Path) -> list[str]:
    return [word.replace(FOLDER, str(folder)) for word in argv]
