# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Are the files of programs and libraries there, and can they be used?

A package manager calls a package installed whose files somebody has removed or locked. Both
functions do I/O, below a root directory that tests plant; no process is started.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# Where programs lie, whatever the PATH: the one of sudo has no /usr/local/bin on Red Hat's systems.
DIRECTORIES = (
    *("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/bin"),
)
# Where the loader finds libraries, on Debian's systems, on Red Hat's, and of a .run file. Debian's
# own driver has links here to its folder.
_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")


class ProgramFile(NamedTuple):
    """The file of a program."""

    path: str  # where it is, or is to be
    exists: bool
    executable: bool


def read_program(root: Path, name: str, directories: Iterable[str] = DIRECTORIES) -> ProgramFile:
    """Return the first file of this name that can be started, else the first one, else none."""
    found = []
    for directory in directories:
        path = f"{directory}/{name}"
        try:
            status = (root / path[1:]).stat()
        except OSError:  # also a link to a file that is gone
            continue
        if stat.S_ISREG(status.st_mode):
            found.append(ProgramFile(path, True, bool(status.st_mode & 0o111)))
    started = [file for file in found if file.executable]
    return next(iter(started or found), ProgramFile(f"/usr/bin/{name}", False, False))


def find_library(root: Path, name: str) -> str | None:
    """Return the path of a library; None where no usual folder has it, or a link leads nowhere."""
    paths = (f"{directory}/{name}" for directory in _LIBRARIES)
    return next((path for path in paths if (root / path[1:]).is_file()), None)
