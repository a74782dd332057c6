# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Write files so that no program ever reads half of one, or one that it must not read.

All functions do I/O. Every failure is a Refused with the path, the reason, and what to do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.probe import replaceable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible.module_utils.basic import AnsibleModule


class Refused(Exception):
    """The file cannot be read or replaced; it is unchanged."""


def content(path: str) -> bytes | None:
    """Return the content of a file. Only regular files are read, because a pipe would block."""
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise Refused(replaceable.find_obstacle(path) or f"{path} is not a regular file")
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}") from error


def sha256(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def missing_directories(path: str) -> Iterator[str]:
    """Yield the directories that are missing for a file, outermost first."""
    directory = os.path.dirname(path)
    if not os.path.lexists(directory):
        yield from missing_directories(directory)
        yield directory


def copy_attributes(candidate: str, original: str, module: AnsibleModule) -> None:
    """Copy owner, group, extended attributes, and last the mode, which allows others to read."""
    status = os.stat(original)
    os.chown(candidate, status.st_uid, status.st_gid)
    with contextlib.suppress(OSError):  # a file system without extended attributes
        # For example an access control list that new files inherit from the directory.
        for name in set(os.listxattr(candidate)) - set(os.listxattr(original)):
            os.removexattr(candidate, name)
    shutil.copystat(original, candidate)
    module.set_context_if_different(candidate, module.selinux_context(original), False)


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Lock the directory of a file against other runs of this module."""
    with writing(path):
        descriptor = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def directories(paths: list[str], mode: int) -> Iterator[None]:
    """Create directories, and remove them if the block fails."""
    created = []
    try:
        for path in paths:
            if not os.path.isdir(path):
                with writing(path):
                    os.mkdir(path, mode)
                    created.append(path)
                    os.chmod(path, mode)  # independent of the umask
        yield
    except BaseException:
        for path in reversed(created):
            with contextlib.suppress(OSError):
                os.rmdir(path)
        raise


@contextlib.contextmanager
def candidate(path: str, content: bytes | None, aside: str | None = None) -> Iterator[str | None]:
    """Write the new file beside the old one, or in `aside`, and remove it after the block.

    Its name ends in random letters, so that no program reads it as one of its files. For example,
    containerd imports every `*.toml` in its `conf.d`.
    """
    if content is None:
        yield None
        return
    with written_aside(path, f".{os.path.basename(path)}.", content, aside) as candidate:
        yield candidate


@contextlib.contextmanager
def written_aside(
    path: str, prefix: str, content: bytes, directory: str | None = None
) -> Iterator[str]:
    """Write a temporary file beside the given one, or in a directory, readable by root only.

    It is removed after the block, unless it was renamed.
    """
    temporary = None
    try:
        with writing(path):
            descriptor, temporary = tempfile.mkstemp(
                prefix=prefix, dir=directory or os.path.dirname(path)
            )
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        yield temporary
    finally:
        if temporary:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = f". Free disk space. `df -h {os.path.dirname(path)}` shows what is available"
        raise Refused(f"cannot write {path}: {error.strerror}{remedy}") from error


def sync(directory: str) -> None:
    """Make a rename permanent, also in case of a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
