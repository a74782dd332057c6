# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Read text files of a node, below a root directory that tests plant.

`NodeFiles` does I/O. It remembers what it read, so that one object ends up holding every text
that a module has to hand over.
"""

from __future__ import annotations

import glob
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class NodeFiles:
    """Texts keyed by absolute path on the node; absent files have no entry."""

    def __init__(self, root: Path) -> None:
        self.texts: dict[str, str] = {}
        self.errors: dict[str, str] = {}  # files that exist and cannot be read, with the reason
        self._root = root

    def exists(self, path: str) -> bool:
        return os.path.exists(self._on_disk(path))

    def find(self, pattern: str) -> list[str]:
        """Return the paths that match a shell pattern, sorted."""
        prefix = str(self._root).rstrip("/")
        found = glob.glob(glob.escape(prefix) + pattern, recursive=True)
        return sorted(path[len(prefix) :] for path in found)

    def modified(self, path: str) -> float | None:
        """Return when a file was last written, in seconds of the epoch; None where it is absent."""
        try:
            return self._on_disk(path).stat().st_mtime
        except OSError:
            return None

    def appeared(self, path: str) -> float | None:
        """Return when a file came to where it is, in seconds of the epoch; None where it is absent.

        Packages give a file the time of its making, which says nothing about this node.
        """
        try:
            return self._on_disk(path).stat().st_ctime
        except OSError:
            return None

    def read(self, path: str) -> str | None:
        """Read one file; None where there is none, or none that may be read.

        Only regular files count: a mask (a link to /dev/null) reads as absent, and a pipe
        somewhere in a configuration directory must not block the whole observation.
        """
        try:
            if not stat.S_ISREG(self._on_disk(path).stat().st_mode):
                return None
            text = self._on_disk(path).read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.errors[path] = error.strerror or str(error)
            return None
        self.texts[path] = text
        return text

    def read_all(self, patterns: Iterable[str]) -> None:
        for pattern in patterns:
            # A glob cannot tell an unreadable directory from an empty one; a read can.
            for path in self.find(pattern) if glob.has_magic(pattern) else [pattern]:
                self.read(path)

    def read_layered(self, directories: Iterable[str], pattern: str, containing: str = "") -> None:
        """Read the files of a configuration directory that exists in several places.

        A file hides its namesakes in later directories, as systemd, modprobe and udev have it.
        Texts without `containing` are not kept.
        """
        names: set[str] = set()
        for directory in directories:
            for path in self.find(f"{directory}/{pattern}"):
                name = path.rsplit("/", 1)[1]
                if name not in names:
                    names.add(name)
                    if containing not in (self.read(path) or ""):
                        self.texts.pop(path, None)

    def _on_disk(self, path: str) -> Path:
        return self._root / path.lstrip("/")
