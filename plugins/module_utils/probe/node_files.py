# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Read text files of a node, below a root directory.

`NodeFiles` does I/O. It keeps the texts that it read, so that a module can return all of them.
"""

from __future__ import annotations

import errno
import glob
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class NodeFiles:
    """Texts keyed by absolute path on the node; absent files have no entry."""

    def __init__(self, root: Path) -> None:
        self.texts: dict[str, str] = {}
        self.errors: dict[str, str] = {}  # files that exist and cannot be read, with the reason
        self._root = root

    def exists(self, path: str) -> bool:
        return os.path.exists(self._on_disk(path))

    def real(self, path: str) -> str:
        """Return a path without links."""
        prefix = os.path.realpath(self._root).rstrip("/")
        found = os.path.realpath(self._on_disk(path))
        return found[len(prefix) :] if found.startswith(f"{prefix}/") else found

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(self._on_disk(path))

    def mode(self, path: str) -> str | None:
        """Return the mode of a file in four digits; None if it is absent."""
        try:
            return f"{stat.S_IMODE(self._on_disk(path).stat().st_mode):04o}"
        except OSError:
            return None

    def find(self, pattern: str) -> list[str]:
        """Return the paths that match a shell pattern, sorted."""
        prefix = str(self._root).rstrip("/")
        found = glob.glob(glob.escape(prefix) + pattern, recursive=True)
        return sorted(path[len(prefix) :] for path in found)

    def modified(self, path: str) -> float | None:
        """Return when a file was last written, in seconds since the epoch; None if it is absent."""
        try:
            return self._on_disk(path).stat().st_mtime
        except OSError:
            return None

    def appeared(self, path: str) -> float | None:
        """Return when a file was put in its place, like `modified`.

        A file from a package has the modification time of its build, not of its installation.
        """
        try:
            return self._on_disk(path).stat().st_ctime
        except OSError:
            return None

    def read(self, path: str) -> str | None:
        """Read one file; None if it is absent or unreadable.

        Only regular files count: a mask (a link to /dev/null) is absent, and a pipe in a
        configuration directory must not block the observation. A folder in the place of a file is
        unreadable for its program, too.
        """
        try:
            mode = self._on_disk(path).stat().st_mode
            if stat.S_ISDIR(mode):
                self.errors[path] = os.strerror(errno.EISDIR)
            if not stat.S_ISREG(mode):
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
            # Unlike a glob, a read distinguishes an unreadable directory from an empty one.
            for path in self._files(pattern) if glob.has_magic(pattern) else [pattern]:
                self.read(path)

    def read_layered(
        self, directories: Iterable[str], pattern: str, containing: Collection[str] = ()
    ) -> None:
        """Read the files of a configuration directory that exists in several places.

        A file hides files of the same name in later directories, as for systemd, modprobe and udev.
        Texts with none of `containing` are not kept.
        """
        names: set[str] = set()
        for directory in directories:
            for path in self._files(f"{directory}/{pattern}"):
                name = path.rsplit("/", 1)[1]
                if name not in names:
                    names.add(name)
                    text = self.read(path) or ""
                    if containing and not any(word in text for word in containing):
                        self.texts.pop(path, None)

    def _files(self, pattern: str) -> list[str]:
        return [path for path in self.find(pattern) if not self.is_folder(path)]

    def _on_disk(self, path: str) -> Path:
        return self._root / path.lstrip("/")
