# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Where metal.gpu.config_document keeps what files were before it changed them. No I/O."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

DIRECTORY = "/var/lib/metal-gpu/config_document"
PATTERN = f"{DIRECTORY}/*.json"


class Edited(NamedTuple):
    """A file, and who changed it."""

    path: str
    actor: str


def file_name(path: str, actor: str) -> str:
    """Return the name of the state of a file that this actor has changed."""
    return quote(f"{path}@{actor}", safe="@") + ".json"


def parse_file_name(name: str) -> Edited:
    """Undo `file_name`; directories before it are ignored."""
    text = unquote(name.rpartition("/")[2].removesuffix(".json"))
    path, _at, actor = text.rpartition("@")
    return Edited(path, actor)
