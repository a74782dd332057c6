# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read about the changes of this collection to a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
from ansible_collections.metal.gpu.plugins.module_utils.read import document_history_files

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading


class Values(TypedDict):
    """What only this probe reads."""

    links: dict[str, str]  # by the real path of an edited file, the path that was read


def _edited(reading: Reading) -> list[str]:
    """Return the real paths of the edited files."""
    histories = reading.files.find(document_history_files.PATTERN)
    return [document_history_files.parse_file_name(history).path for history in histories]


def _read(reading: Reading) -> None:
    """Read the edited files that no other component has read."""
    links = _links(reading)
    for path in _edited(reading):
        if path not in links:
            reading.files.read(path)


def _links(reading: Reading) -> dict[str, str]:
    """Return under which paths the other components have read edited files, where they are links.

    A history has the real path of its file. An engine knows the file by the path of its
    configuration, which can be a link or be below one.
    """
    files = reading.files
    wanted = {path for path in _edited(reading) if path not in files.texts}
    if not wanted:
        return {}
    found = {files.real(path): path for path in sorted((*files.texts, *files.errors), reverse=True)}
    return {real: path for real, path in found.items() if real in wanted and path != real}


def _values(reading: Reading) -> Values:
    return {"links": _links(reading)}


PROBE = Probe(files=(document_history_files.PATTERN,), read=_read, values=_values)
