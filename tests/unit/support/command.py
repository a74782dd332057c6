# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run `metal-gpu` from the checkout, as its own process."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema

ROOT = Path(__file__).parents[3]
COLUMNS = 80  # of a terminal
SCHEMAS = ROOT / "src" / "metal_gpu" / "schemas"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
_FOLDERS = (ROOT / "src", ROOT / ".ansible" / "collections")


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which the checkout is installed, without colours of its own."""
    names = ("ANSIBLE_", "K8S_AUTH_", "KUBECONFIG", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, _FOLDERS)), **more}


def run(
    *arguments: str, stdin: str = "", module: str = "metal_gpu", cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the command without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=environment(**env),
        timeout=120,
    )


def run_program(program: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program of Python that uses the library."""
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=environment(**env),
        timeout=120,
    )


def on_terminal(*arguments: str, **env: str) -> tuple[list[str], int]:
    """Run Python in a pseudo-terminal. Return the lines that it prints, and its exit code.

    What bars print on their way is in these lines, too.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(TERM="xterm-256color", **env),
    )
    os.close(theirs)
    text = _read_to_the_end(ours).decode()
    lines = [_CONTROL.sub("", part) for line in text.split("\n") for part in line.split("\r")]
    return [line.rstrip() for line in lines if line], process.wait()


def _read_to_the_end(terminal: int) -> bytes:
    text = b""
    with os.fdopen(terminal, "rb", buffering=0) as stream, suppress(OSError):  # its end, on Linux
        while part := stream.read(4096):
            text += part
    return text


def parsed(name: str, text: str) -> Any:
    """Return JSON that a command has printed; it must fit the schema of that name."""
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads(text)
    jsonschema.validate(document, schema)
    return document
