# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How something on a node is broken, and mended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

SCENARIO = Path(__file__).parent.parent
# What site.yml does on the nodes themselves.
NODE = str(SCENARIO.parent / "mishaps" / "node.yml")
CONTAINERD = "--limit=gpu-1,gpu-2"


class Break(NamedTuple):
    """Commands that break something on a node, and that mend it."""

    codes: str  # of the findings that it has to be
    broken: str
    mended: str


def of_lab(*words: str) -> str:
    """Return the mark of a fault that the laboratory knows, for a hardware fault."""
    return "lab:" + " ".join(words)


def hardware(codes: str, *words: str) -> Break:
    """Return a fault of the simulated hardware."""
    return Break(codes, of_lab(*words), of_lab("restore"))


@contextmanager
def broken(laboratory: Any, node: str, commands: Break) -> Iterator[None]:
    host = laboratory.host(node)

    def run(command: str) -> None:
        if command.startswith("lab:"):
            laboratory.lab("fault", node, *command.removeprefix("lab:").split())
        else:
            host.check_output(command)

    try:
        run(commands.broken)
        yield
    finally:
        run(commands.mended)


def stop(code: str, *units: str) -> Break:
    return Break(code, f"systemctl stop {' '.join(units)}", f"systemctl start {' '.join(units)}")


def edit(code: str, path: str, command: str, after: str = "true") -> Break:
    """Change a file by a command; `after` has the service read it, and its former content."""
    return Break(
        code,
        f"cp --preserve {path} /root/good && {command} && {after}",
        f"mv /root/good {path} && {after}",
    )


def offers(laboratory: Any, node: str, count: int, resource: str = r"nvidia\.com/gpu") -> None:
    """Wait until a node hands so many GPUs out."""
    path = f"{{.status.allocatable.{resource}}}"
    laboratory.kubectl("wait", f"--for=jsonpath={path}={count}", f"node/{node}", "--timeout=90s")
