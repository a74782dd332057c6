# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find out whether the files of programs and libraries exist and are usable.

For a package manager, a package whose files were removed or locked is still installed. Most
functions do I/O; they take the root directory as an argument, and start no process.
`find_program` looks on the node itself.
"""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ansible_collections.metal.gpu.plugins.module_utils.probe.raw_data import ProgramFileData

# The directories of programs. sudo's PATH is not enough: on Red Hat, it lacks /usr/local/bin.
DIRECTORIES = (
    *("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/bin"),
)
# The directories of libraries: Debian's, Red Hat's, that of a .run file. Debian's own driver has
# links there.
_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")


def read_program(
    root: Path, name: str, directories: Iterable[str] = DIRECTORIES
) -> ProgramFileData:
    """Return the first executable file of this name, else the first file, else an absent one."""
    found: list[ProgramFileData] = []
    for directory in directories:
        path = f"{directory}/{name}"
        try:
            status = (root / path[1:]).stat()
        except OSError:  # also a link to a file that is gone
            continue
        if stat.S_ISREG(status.st_mode):
            executable = bool(status.st_mode & 0o111)
            found.append({"path": path, "exists": True, "executable": executable})
    started = [file for file in found if file["executable"]]
    absent: ProgramFileData = {"path": f"/usr/bin/{name}", "exists": False, "executable": False}
    return next(iter(started or found), absent)


def find_library(root: Path, name: str) -> str | None:
    """Return the path of a library; None if no usual directory has it, or its link is dangling."""
    paths = (f"{directory}/{name}" for directory in _LIBRARIES)
    return next((path for path in paths if (root / path[1:]).is_file()), None)


def find_program(name: str) -> str | None:
    """Return the path of a program in the PATH or in one of the usual directories."""
    directories = (os.environ.get("PATH", os.defpath), *DIRECTORIES)
    return shutil.which(name, path=os.pathsep.join(directories))
