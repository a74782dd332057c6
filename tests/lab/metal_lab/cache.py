# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A cache of builds. A folder's name has a digest of everything that it was built from."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

FILES = Path(__file__).resolve().parent / "files"

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "metal-lab"

UNUSED_S = 14 * 24 * 3600

console = Console(highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """Print a line about progress."""
    console.print(text, markup=False)


def give_back(path: Path) -> None:
    """Change the owner of `path` to the user who called sudo, if this process runs under sudo."""
    user = os.environ.get("SUDO_UID")
    if user is not None and path.exists():
        subprocess.run(["chown", "-R", "-h", f"{user}:{os.environ['SUDO_GID']}", path], check=True)


def digest(*inputs: str | Path) -> str:
    """Return 12 hex digits that change whenever one of the inputs does.

    An input is a text, a file with its content, or a folder with every file below it.
    """
    state = hashlib.sha256()
    for item in inputs:
        if isinstance(item, str):
            state.update(b"text\0" + item.encode() + b"\0")
            continue
        files = [item] if item.is_file() else sorted(p for p in item.rglob("*") if p.is_file())
        for path in files:
            if "__pycache__" in path.parts:
                continue
            state.update(str(path.relative_to(item.parent)).encode() + b"\0" + path.read_bytes())
    return state.hexdigest()[:12]


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the machine-wide lock `name`, so that two laboratories never build the same part."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        give_back(Path(lock.name))
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def built(name: str, key: str, what: str, build: Callable[[Path], object]) -> Path:
    """Return the folder `name-key` of the cache. If it does not exist, let `build` fill it.

    The folder gets its name only after `build` returns, so that a crash leaves nothing that looks
    finished. Folders of the same name that no laboratory used for 14 days are removed.
    """
    target = CACHE / "built" / f"{name}-{key}"
    with locked(f"build-{name}"):
        if target.exists():
            os.utime(target)
            return target
        say(f"building {what}")
        started = time.monotonic()
        unfinished = target.with_name(target.name + ".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        build(unfinished)
        for stale in target.parent.glob(f"{name}-*"):
            if time.time() - stale.stat().st_mtime > UNUSED_S:
                shutil.rmtree(stale)
        unfinished.rename(target)
        give_back(CACHE)
        say(f"built {what} in {time.monotonic() - started:.0f} s")
    return target
