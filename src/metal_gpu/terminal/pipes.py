# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a command does if its output cannot be written: its reader has ended, or a disk is full.

A command that only reads ends then. If the reader has ended, as `head` does, its code is the one
that a shell shows for SIGPIPE, and otherwise it says why. A command that changes something goes on,
and its exit code tells how that ended. SIGPIPE itself stays ignored, because connections to
machines can break as well.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from metal_gpu.terminal import exit_codes, output


class Output(io.TextIOWrapper):
    """A standard stream whose reader may leave, or whose disk may be full."""

    is_needed = True  # whether the command is only there for its reader

    def __init__(self, stream: io.TextIOWrapper) -> None:
        # With PYTHONUNBUFFERED, Python writes to the file itself, and drops without a word what a
        # pipe has not taken when its reader ends.
        raw = stream.buffer if isinstance(stream.buffer, io.RawIOBase) else None
        self._own = io.BufferedWriter(raw) if raw else None
        super().__init__(
            self._own or stream.buffer,
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
        )

    def write(self, text: str) -> int:
        try:
            written = super().write(text)
            if self._own:
                super().flush()
            return written
        except OSError as error:
            self._leave(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._leave(error)

    def release(self) -> None:
        """Leave the file open, which belongs to the other stream as well."""
        self.detach()
        if self._own:
            self._own.detach()

    def _leave(self, error: OSError) -> None:
        """Write what is left, and what follows, to nobody. Nothing goes wrong there."""
        nobody = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nobody, self.fileno())
        os.close(nobody)
        is_unread = isinstance(error, BrokenPipeError)
        if not is_unread:
            output.error(f"the output is not complete: {error.strerror}")
        if Output.is_needed:
            raise SystemExit(exit_codes.UNREAD if is_unread else exit_codes.UNWRITTEN)


@contextmanager
def watched() -> Iterator[None]:
    """Use such streams, and write them to their end, so that the exit code can tell of it."""
    before = sys.stdout, sys.stderr
    # None if the caller has closed it.
    sys.stdout, sys.stderr = (
        Output(stream) if isinstance(stream, io.TextIOWrapper) else stream for stream in before
    )
    ours = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, Output)]
    try:
        yield
    finally:
        try:
            _flush()
        finally:
            sys.stdout, sys.stderr = before
            for stream in ours:
                stream.release()


@contextmanager
def unread(counts: bool = True) -> Iterator[None]:
    """Go on without output if what is done here counts, and not only what is printed."""
    before, Output.is_needed = Output.is_needed, Output.is_needed and not counts
    try:
        yield
    finally:
        try:
            _flush()
        finally:
            Output.is_needed = before


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, Output):
            stream.flush()
