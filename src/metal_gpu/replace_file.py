# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write a file of the user so that no program reads half of it. Every function does I/O.

The new content is a file of its own that takes the name of the old one. So what belongs to the old
file and not to its name is carried over, or the file is refused: nothing gets lost in silence.

Source: xattr(7), acl(5), and rename(2) of Linux
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
from pathlib import Path

# The kernel computes them from the content.
_OF_CONTENT = ("security.ima", "security.evm")


def check(path: Path) -> None:
    """Return if `replace` may write a file. Raises OSError with the reason if not."""
    target = path.resolve()
    try:
        status = target.stat()
    except FileNotFoundError:
        return
    if not status.st_mode & 0o222:  # also for root, who could write it
        raise PermissionError(errno.EACCES, "the file is read-only", str(path))
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if status.st_nlink > 1:
        # The other names would keep the old content. To write in place is no way out: a name can
        # belong to a backup, and a program could read half of the file.
        names = f"the file has {status.st_nlink} names (hard links), and the others would stay old"
        raise OSError(errno.EMLINK, names, str(path))


def replace(path: Path, content: str | bytes) -> None:
    """Write a file, new or not. A link stays, and its target is written.

    An existing file keeps its mode, its extended attributes, such as ACLs and the SELinux context,
    and its owner where possible.

    Raises OSError; the file is then unchanged.
    """
    check(path)
    target = path.resolve()
    data = content.encode() if isinstance(content, str) else content
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    candidate = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            try:
                before = target.stat()
            except FileNotFoundError:
                os.fchmod(descriptor, 0o666 & ~_umask())
            else:
                with contextlib.suppress(PermissionError):  # a file of another user
                    os.fchown(descriptor, before.st_uid, before.st_gid)
                os.fchmod(descriptor, before.st_mode & 0o7777)
                _copy_attributes(target, candidate)
            os.fsync(descriptor)
        candidate.replace(target)
    except BaseException:
        candidate.unlink(missing_ok=True)
        raise


def _copy_attributes(source: Path, target: Path) -> None:
    """Give a file the extended attributes of another one. Raises OSError with the name of one."""
    if sys.platform != "linux":  # Python knows them there only
        return
    wanted, there = _attributes(source), _attributes(target)
    for name in there.keys() - wanted.keys():
        if not name.startswith("security."):  # such as an ACL that new files of the folder get
            os.removexattr(target, name)
    for name, value in wanted.items():
        if there.get(name) == value:
            continue
        try:
            os.setxattr(target, name, value)
        except OSError as error:
            words = f"its attribute {name} cannot be kept: {error.strerror}"
            raise OSError(error.errno, words, str(source)) from error


def _attributes(path: Path) -> dict[str, bytes]:
    assert sys.platform == "linux"
    try:
        names = os.listxattr(path)
    except OSError as error:
        if error.errno == errno.ENOTSUP:  # the file system has none
            return {}
        raise
    return {name: os.getxattr(path, name) for name in names if name not in _OF_CONTENT}


def _umask() -> int:
    """Return the mask of new files. It can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
