# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""The result of a command, and why it is missing or incomplete. No function does I/O."""

from __future__ import annotations

from typing import NamedTuple


class Output(NamedTuple):
    """The result of a command."""

    rc: int | None  # None: it did not exit in time
    stdout: str
    stderr: str


def failure_text(output: Output | None, program: str) -> str:
    """Return why a program's output is missing or incomplete: its error messages, if it has any.

    The output is None if the program is not on the node.
    """
    if output is None:
        return f"{program} was not found"
    if output.rc is None:
        return "no answer in time"
    errors = " ".join(output.stderr.split())
    return errors or (f"exit code {output.rc}" if output.rc else "the output is incomplete")
