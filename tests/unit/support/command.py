# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run `metal-gpu` from the checkout, as its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema

ROOT = Path(__file__).parents[3]
SCHEMAS = ROOT / "src" / "metal_gpu" / "schemas"
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


def parsed(name: str, text: str) -> Any:
    """Return JSON that a command has printed; it must fit the schema of that name."""
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads(text)
    jsonschema.validate(document, schema)
    return document
