# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read about the changes of this collection to a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
from ansible_collections.metal.gpu.plugins.module_utils.read import document_history_files

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading


def _read(reading: Reading) -> None:
    for history in reading.files.find(document_history_files.PATTERN):
        reading.files.read(document_history_files.parse_file_name(history).path)


PROBE = Probe(files=(document_history_files.PATTERN,), read=_read)
