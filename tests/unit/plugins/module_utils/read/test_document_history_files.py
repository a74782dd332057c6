# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import document_history_files


@pytest.mark.parametrize(
    ("path", "actor"),
    [("/etc/docker/daemon.json", "metal.gpu.nvidia_container_runtime"), ("/a b/100%@x", "o")],
)
def test_names_can_be_read_again(path, actor):
    name = document_history_files.file_name(path, actor)
    assert "/" not in name
    edited = document_history_files.parse_file_name(f"{document_history_files.DIRECTORY}/{name}")
    assert edited == (path, actor)
