# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Ask the package manager what it would do, with files of its own in a temporary folder.

The request is data: plugin_utils/packages/rehearsal.py writes it. `rehearse` does I/O, below its
folder only; the programs that it runs get their own indexes and caches there.

A request has, each of them optional, and all paths relative to the folder:
  folders   to create
  files     texts, keyed by path; the text FOLDER in them, and in programs, is the folder
  links     folders of the node whose files get links in a folder here, as pairs (here, node)
  copies    folders of the node to copy, likewise
  old       files of the node; the index is old if the first of them that exists is older than
            `seconds`
  programs  argv; `if_old`: whether it runs only if the index is old; `success`: words that show
            success whatever the exit status. The first failure ends it
  answers   argv, keyed by name: what to ask after a failure
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

FOLDER = "@FOLDER@"

Run = Callable[[list[str]], tuple[int, str, str]]


def rehearse(
    request: Mapping[str, Any], run: Run, now: float, parent: Path | None = None
) -> dict[str, Any]:
    """Return what the last program printed, and of a failure its error and the answers.

    The result has `printed`, `error` (None if all programs succeeded) and `answers`.
    `run` runs a program; it returns its exit status and what it printed. Raises OSError.
    """
    with tempfile.TemporaryDirectory(prefix="metal-gpu-", dir=parent) as name:
        folder = Path(name)
        # The user of apt's downloads has to get through. Only root can read the sources.
        folder.chmod(0o711)
        _prepare(folder, request)
        is_old = _is_old(request, now)
        printed, error = "", None
        for program in request["programs"]:
            if program.get("if_old") and not is_old:
                continue
            status, printed, error = run(_filled(program["argv"], folder))
            # dnf declines with the status of a failure.
            words = program.get("success")
            if status and not (words and words in f"{printed}{error}"):
                break
            error = None
        answers = {}
        if error is not None:
            for about, argv in request.get("answers", {}).items():
                _status, out, err = run(_filled(argv, folder))
                answers[about] = f"{out}{err}"
        return {"printed": printed, "error": error, "answers": answers}


def _prepare(folder: Path, request: Mapping[str, Any]) -> None:
    for name in request.get("folders", []):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, place in request.get("copies", []):
        if os.path.isdir(place):
            shutil.copytree(place, folder / name, ignore=shutil.ignore_patterns("*.rpm", "*.pid"))
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


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _is_old(request: Mapping[str, Any], now: float) -> bool:
    old = request.get("old")
    if not old:
        return True
    for path in old["files"]:
        if os.path.exists(path):
            return now - os.stat(path).st_mtime > float(old["seconds"])
    return True


def _filled(argv: list[str], folder: Path) -> list[str]:
    return [word.replace(FOLDER, str(folder)) for word in argv]
