# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which keys known_hosts has for a machine, and how a new one is added.

Source: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT. Certificate authorities (`@cert-authority`) do not
count, because paramiko offers no certificates of hosts.
"""

from __future__ import annotations

import base64
import binascii
import errno
import fcntl
import hashlib
import hmac
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from metal_gpu import replace_file

_HASHED = "|1|"
_SALT_BYTES = 20
_LOCK_S, _LOCK_STEP_S = 10.0, 0.01
_writing = Lock()


class Entry(NamedTuple):
    """A line of a known_hosts file."""

    file: Path
    line: int
    marker: str  # @revoked, @cert-authority, or empty
    patterns: str
    kind: str  # such as ssh-ed25519
    blob: bytes  # the public key

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.blob)

    def matches(self, name: str) -> bool:
        """Tell whether the line is about a machine: NAME, or [NAME]:PORT."""
        if self.patterns.startswith(_HASHED):
            return _matches_hash(self.patterns, name)
        patterns = self.patterns.lower().split(",")
        name = name.lower()
        refused = [one[1:] for one in patterns if one.startswith("!")]
        wanted = [one for one in patterns if not one.startswith("!")]
        return not _any_matches(name, refused) and _any_matches(name, wanted)


def fingerprint(blob: bytes) -> str:
    """Return the fingerprint of a public key, as ssh-keygen prints it."""
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode()
    return f"SHA256:{digest.rstrip('=')}"


def name_of(address: str, port: int) -> str:
    """Return how known_hosts names a machine."""
    return address if port == 22 else f"[{address}]:{port}"


def read(files: Iterable[Path]) -> list[Entry]:
    """Return the entries of the files that exist. A line that is not valid is left out, as by ssh.

    Raises OSError for a file that exists and cannot be read.
    """
    return [entry for file in files for entry in _read(file)]


def names_of(address: str, port: int) -> tuple[str, ...]:
    """Return the names of a machine, the right one first: for ssh, that without a port counts."""
    return tuple(dict.fromkeys((name_of(address, port), address)))


def find(entries: Sequence[Entry], names: Iterable[str]) -> list[Entry]:
    """Return the keys of the first of a machine's names that has some, and all that are revoked."""
    of_names = [[one for one in entries if one.matches(name)] for name in names]
    keys = ([one for one in found if not one.marker] for found in of_names)
    revoked = [one for found in of_names for one in found if one.marker == "@revoked"]
    return [*revoked, *next(filter(None, keys), [])]


def add(file: Path, name: str, kind: str, blob: bytes, *, hashed: bool) -> None:
    """Add a key. The file has either its old content or the new one, also after a power cut.

    Raises OSError.
    """
    name = name.lower()
    line = f"{_hash(name) if hashed else name} {kind} {base64.b64encode(blob).decode()}\n"
    place = Path(os.path.realpath(file))
    with _writing, _locked(place):
        content = place.read_bytes()
        known = _parse(place, content.decode("utf-8", "replace"))
        if any(one.blob == blob and one.matches(name) for one in known):
            return  # another thread or program has just accepted it
        if content and not content.endswith(b"\n"):
            content += b"\n"
        replace_file.replace(place, content + line.encode())


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Keep other programs of this kind from the file, which is there from then on.

    They replace the file, so a lock counts only if the file still has this name.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    deadline = time.monotonic() + _LOCK_S
    while True:
        # A device must not be replaced by a file.
        if file.exists() and not file.is_file():
            raise OSError(errno.EINVAL, "no file in which a host key can be kept", str(file))
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if _lock(descriptor, file) and _has_name(descriptor, file):
                yield
                return
        finally:
            os.close(descriptor)
        if time.monotonic() > deadline:
            words = f"another program has locked the file for more than {_LOCK_S:.0f} s"
            raise OSError(errno.EWOULDBLOCK, words, str(file))
        time.sleep(_LOCK_STEP_S)


def _lock(descriptor: int, file: Path) -> bool:
    """Tell whether this program has the lock now. It ends with the descriptor."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        words = f"the file cannot be locked: {error.strerror}"
        raise OSError(error.errno, words, str(file)) from error
    return True


def _has_name(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False


def _read(file: Path) -> tuple[Entry, ...]:
    try:
        status = file.stat()
    except FileNotFoundError:
        return ()
    return _parsed(file, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)
def _parsed(file: Path, _modified: int, _size: int) -> tuple[Entry, ...]:
    """Parse a file once for all machines of a run."""
    return tuple(_parse(file, file.read_text("utf-8", "replace")))


def _parse(file: Path, text: str) -> Iterator[Entry]:
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        marker = words.pop(0) if words[0].startswith("@") else ""
        if len(words) < 3:
            continue
        with suppress(binascii.Error, ValueError):
            blob = base64.b64decode(words[2], validate=True)
            yield Entry(file, number, marker, words[0], words[1], blob)


def _any_matches(name: str, patterns: Iterable[str]) -> bool:
    # [ is part of the names of machines with a port, and no set of characters.
    return any(fnmatchcase(name, one.replace("[", "[[]")) for one in patterns)


def _matches_hash(pattern: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part) for part in pattern[len(_HASHED) :].split("|"))
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.digest(salt, name.lower().encode(), "sha1"), digest)


def _hash(name: str) -> str:
    salt = os.urandom(_SALT_BYTES)
    parts = (salt, hmac.digest(salt, name.encode(), "sha1"))
    return _HASHED + "|".join(base64.b64encode(part).decode() for part in parts)
