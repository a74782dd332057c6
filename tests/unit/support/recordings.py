# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the recorded outputs and planted nodes under tests/unit/fixtures."""

from __future__ import annotations

import os
import re
from itertools import dropwhile
from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures"


def recording(name: str) -> str:
    """Return a recorded text without the comment on top that tells form, origin and scene."""
    lines = (FIXTURES / name).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(dropwhile(lambda line: line.startswith("#"), lines)).removeprefix("\n")


def parse_scene(text: str) -> dict[str, str]:
    """Split the output of `tail -n +1 FILE...` into texts keyed by path."""
    parts = re.split(r"^==> (\S+) <==\n", text, flags=re.MULTILINE)
    bodies = (body.removesuffix("\n") for body in parts[2::2])
    return dict(zip(parts[1::2], bodies, strict=True))


def plant(root: Path, texts: dict[str, str]) -> None:
    """Write texts below a directory that stands for a node's root."""
    for path, text in texts.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def move(root: Path, path: str, to: str) -> None:
    """Move a planted file or folder, and leave a link in its place, as some admins do."""
    place, target = (root / one.lstrip("/") for one in (path, to))
    target.parent.mkdir(parents=True, exist_ok=True)
    place.rename(target)
    # Relative, so that it stays below the root.
    place.symlink_to(os.path.relpath(target, place.parent))


def plant_services(root: Path, texts: dict[str, str]) -> None:
    """Plant a scene with processes, whose programs are the first words of their command lines."""
    plant(root, texts)
    for path, text in texts.items():
        if path.endswith("/cmdline"):
            file = root / path.lstrip("/")
            file.write_bytes(text.replace("\n", "\0").encode())
            (file.parent / "exe").symlink_to(text.partition("\n")[0])
