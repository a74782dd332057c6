# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Scenes: what a machine had before. They belong to the project that uses the laboratory.

A scene is a shell script NAME.sh in the folder that the description names. It runs as root on a
node that is Ready, in a copy of the folder NAME, if there is one, with the files that it needs. Its
first comment says what the node has then.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

from metal_lab import nodes
from metal_lab.state import State

PLACE = "/run/metal-lab/scene"


def what(script: Path) -> str:
    """Return the first comment of a script after its licence."""
    comments = (line for line in script.read_text().splitlines() if line.startswith("# "))
    return next((line[2:] for line in comments if "SPDX-" not in line), "")


def listing(folder: Path | None) -> str:
    """Return the scenes of a folder with what they are, one a line."""
    scripts = sorted(folder.glob("*.sh")) if folder else []
    return "\n".join(f"{script.stem:26}{what(script)}" for script in scripts) or "no scenes"


def set_up(state: State, node: str, name: str, arguments: Sequence[str]) -> str:
    """Set up a scene on a node. Return its output."""
    folder = Path(state.scenes) if state.scenes else None
    script = folder / f"{name}.sh" if folder else None
    if not script or not script.is_file():
        raise SystemExit(f"no scene {name!r}; to list the scenes: lab scene {node} list")
    nodes.execute(state, node, ["rm", "-rf", PLACE])
    nodes.execute(state, node, ["mkdir", "-p", PLACE])
    nodes.execute(state, node, ["tar", "-x"], folder=PLACE, stdin=_archive(script))
    output = nodes.execute(state, node, ["sh", script.name, *arguments], folder=PLACE)
    nodes.execute(state, node, ["rm", "-r", PLACE])
    return output


def _archive(script: Path) -> bytes:
    """Return a tar archive with the script and the content of its folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in (script, *sorted(script.with_suffix("").glob("*"))):
            archive.add(path, path.name)
    return buffer.getvalue()
