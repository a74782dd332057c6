# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Run several commands at once, each with a time limit.

`read_outputs` does I/O, through the runner it is given (`limited.run`).

Source: https://www.gnu.org/software/coreutils/manual/html_node/timeout-invocation.html
"""

from __future__ import annotations

import time
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output

if TYPE_CHECKING:
    from collections.abc import Mapping

KILL_AFTER_S = 1  # between SIGTERM and SIGKILL
GRACE_S = 1
ENVIRONMENT = {"LC_ALL": "C", "LANGUAGE": "C"}
TIMED_OUT = (124, 137)  # exit codes of timeout(1): ended by SIGTERM, ended by SIGKILL


class Command(NamedTuple):
    """A program with its arguments and its time limit."""

    argv: tuple[str, ...]
    timeout_s: float = 10


class RunCommand(Protocol):
    """What `limited.run` does."""

    def __call__(
        self,
        args: list[str],
        /,
        *,
        environ_update: Mapping[str, str],
        errors: str,
        handle_exceptions: bool,
    ) -> tuple[int, str, str]:
        """Return the exit code, the output and the errors of a program."""


def read_outputs(commands: Mapping[str, Command], run_command: RunCommand) -> dict[str, Output]:
    """Run all commands at once; return their outputs under the same keys.

    timeout(1) ends a command that hangs. A command that hangs in the kernel, as nvidia-smi does on
    a broken GPU, cannot be killed, and timeout(1) waits for it. Therefore the threads are daemon
    threads, which do not keep the interpreter alive, unlike those of concurrent.futures. Such a
    command is left running.
    """
    outputs: dict[str, Output] = {}

    def run(name: str, command: Command) -> None:
        limit = ["timeout", f"--kill-after={KILL_AFTER_S}", str(command.timeout_s)]
        try:
            rc, stdout, stderr = run_command(
                [*limit, *command.argv],
                environ_update=ENVIRONMENT,
                errors="replace",
                handle_exceptions=False,
            )
        except OSError as error:
            outputs[name] = Output(127, "", str(error))
        else:
            outputs[name] = Output(None if rc in TIMED_OUT else rc, stdout, stderr)

    threads = [Thread(target=run, args=item, daemon=True) for item in commands.items()]
    longest = max((command.timeout_s for command in commands.values()), default=0)
    deadline = time.monotonic() + longest + KILL_AFTER_S + GRACE_S
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return {name: outputs.get(name, Output(None, "", "")) for name in commands}
