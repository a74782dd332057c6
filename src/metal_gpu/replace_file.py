# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write a file of the user so that no program reads half of it. Every function does I/O."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def replace(path: Path, text: str) -> None:
    """Write a file, new or not. An existing one keeps its mode, and its owner where possible.

    A link stays, and its target is written. Raises OSError; the file is then unchanged.
    """
    target = path.resolve()
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    candidate = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            before = target.stat()
        except FileNotFoundError:
            candidate.chmod(0o666 & ~_umask())
        else:
            with contextlib.suppress(PermissionError):  # a file of another user in our folder
                os.chown(candidate, before.st_uid, before.st_gid)
            candidate.chmod(before.st_mode & 0o7777)
        candidate.replace(target)
    except BaseException:
        candidate.unlink(missing_ok=True)
        raise


def _umask() -> int:
    """Return the mask of new files. It can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
