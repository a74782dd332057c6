# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Run a program whose output may have no end. AnsibleModule.run_command would keep all of it."""

from __future__ import annotations

import os
import subprocess
import time
from threading import Thread
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# No program that is asked prints a tenth of this. A kernel log has at most a few MiB.
LIMIT = 8 * 1024 * 1024  # bytes of each stream
TOO_LONG = 124  # as if it had not ended
# A program can leave a process behind that keeps the streams open. What the program itself printed
# is there when it ends. Shorter than GRACE_S, so that the caller still waits.
_AFTER_END_S = 0.5
_CHUNK = 64 * 1024


def run(
    args: list[str],
    *,
    environ_update: Mapping[str, str],
    errors: str = "replace",
    handle_exceptions: bool = False,
) -> tuple[int, str, str]:
    """Return the exit code, the output and the errors of a program, as run_command does.

    A program that prints more than the limit gets SIGPIPE, and its exit code is TOO_LONG. Raises
    OSError where it cannot be started.
    """
    process = subprocess.Popen(  # pylint: disable=ansible-bad-function
        args,
        env={**os.environ, **environ_update},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    streams = [stream for stream in (process.stdout, process.stderr) if stream]
    texts: list[list[bytes]] = [[] for _stream in streams]
    readers = [Thread(target=_read, args=one, daemon=True) for one in zip(streams, texts)]
    for reader in readers:
        reader.start()
    rc = process.wait()
    deadline = time.monotonic() + _AFTER_END_S
    for reader in readers:
        reader.join(max(0.0, deadline - time.monotonic()))
    printed = [b"".join(chunks) for chunks in texts]
    is_cut = any(len(text) > LIMIT for text in printed)
    stdout, stderr = (text[:LIMIT].decode(errors=errors) for text in printed)
    return TOO_LONG if is_cut else rc, stdout, stderr


def _read(stream: IO[bytes], chunks: list[bytes]) -> None:
    """Read a stream to its end, or to the limit."""
    left = LIMIT + 1
    with stream:
        while left > 0 and (chunk := stream.read(min(left, _CHUNK))):
            chunks.append(chunk)
            left -= len(chunk)
