# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Run a program whose output may have no end. AnsibleModule.run_command would keep all of it."""

from __future__ import annotations

import os
import subprocess
from threading import Thread
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# No program that is asked prints a tenth of this. A kernel log has at most a few MiB.
LIMIT = 8 * 1024 * 1024  # bytes of each stream
TOO_LONG = 124  # as if it had not ended


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
    texts: list[bytes] = [b"", b""]

    def read(number: int, stream: IO[bytes] | None) -> None:
        if stream:
            with stream:
                texts[number] = stream.read(LIMIT + 1)

    with subprocess.Popen(
        args,
        env={**os.environ, **environ_update},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        reader = Thread(target=read, args=(1, process.stderr), daemon=True)
        reader.start()
        read(0, process.stdout)
        reader.join()
    is_cut = any(len(text) > LIMIT for text in texts)
    stdout, stderr = (text[:LIMIT].decode(errors=errors) for text in texts)
    return TOO_LONG if is_cut else process.returncode, stdout, stderr
