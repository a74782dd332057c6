# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Names of the files in which metal.gpu.config_document keeps the history of its edits."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

DIRECTORY = "/var/lib/metal-gpu/config_document"
PATTERN = f"{DIRECTORY}/*.json"


class Edited(NamedTuple):
    """An edited file and the actor that edited it."""

    path: str
    actor: str


def file_name(path: str, actor: str) -> str:
    """Return the name of the history file for the edits of one actor in one file."""
    return quote(f"{path}@{actor}", safe="@") + ".json"


def backup_name(path: str, actor: str) -> str:
    """Return the name of the copy of a file from before the first edit of an actor."""
    return file_name(path, actor).removesuffix(".json") + ".orig"


def parse_file_name(name: str) -> Edited:
    """Parse what `file_name` returned; directories before it are ignored."""
    text = unquote(name.rpartition("/")[2].removesuffix(".json"))
    path, _at, actor = text.rpartition("@")
    return Edited(path, actor)
