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
    with written_aside(path, content, aside) as candidate:
        yield candidate


@contextlib.contextmanager
def written_aside(path: str, content: bytes, directory: str | None = None) -> Iterator[str]:
    """Write a temporary file beside the given one, or in a directory, readable by root only.

    It is removed after the block, unless it was renamed. It is locked until then, so that `sweep`
    can tell it from one whose process was killed.
    """
    with contextlib.ExitStack() as stack:
        with writing(path):
            descriptor, temporary = tempfile.mkstemp(
                prefix=_aside(path), dir=directory or os.path.dirname(path)
            )
            stack.callback(_remove, temporary)
            stack.callback(os.close, descriptor)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
        yield temporary


def sweep(path: str, directory: str | None = None) -> None:
    """Remove temporary files beside the given one, or in a directory, of processes that died."""
    directory, prefix = directory or os.path.dirname(path), _aside(path)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        for name in os.listdir(directory):
            if name.startswith(prefix):
                _remove_if_unlocked(os.path.join(directory, name))


def _aside(path: str) -> str:
    """Return the start of the names of temporary files for a file."""
    return f".metal-gpu-{hashlib.sha256(os.path.basename(path).encode()).hexdigest()[:16]}-"


def _remove_if_unlocked(temporary: str) -> None:
    with contextlib.suppress(OSError):  # of a process that runs, or already removed
        descriptor = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(temporary)
        finally:
            os.close(descriptor)


def _remove(temporary: str) -> None:
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
