# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe.node_files import NodeFiles
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant


@pytest.fixture
def files(tmp_path):
    plant(tmp_path, {"/etc/a.conf": "a", "/usr/lib/a.conf": "hidden", "/usr/lib/b.conf": "b"})
    return NodeFiles(tmp_path)


def test_read_all_takes_paths_and_patterns(files):
    files.read_all(["/etc/a.conf", "/usr/lib/*.conf", "/etc/absent", "/absent/*.conf"])
    assert files.texts == {"/etc/a.conf": "a", "/usr/lib/a.conf": "hidden", "/usr/lib/b.conf": "b"}
    assert files.errors == {}


def test_an_earlier_layer_hides_namesakes(files):
    files.read_layered(["/etc", "/run", "/usr/lib"], "*.conf")
    assert files.texts == {"/etc/a.conf": "a", "/usr/lib/b.conf": "b"}


def test_a_layer_that_is_left_out_still_hides_namesakes(files):
    files.read_layered(["/etc", "/usr/lib"], "*.conf", containing=["hidden"])
    assert files.texts == {}


def test_a_mask_hides_namesakes_and_reads_as_absent(files, tmp_path):
    (tmp_path / "etc/b.conf").symlink_to(os.devnull)
    files.read_layered(["/etc", "/usr/lib"], "b.conf")
    assert files.texts == {}


def test_a_pipe_does_not_block(files, tmp_path):
    os.mkfifo(tmp_path / "etc/pipe")
    assert files.read("/etc/pipe") is None


def test_a_file_that_cannot_be_read_is_told_with_the_reason(files, tmp_path):
    (tmp_path / "etc/loop").symlink_to("loop")
    assert files.read("/etc/loop") is None
    assert files.errors == {"/etc/loop": "Too many levels of symbolic links"}


def test_binary_content_is_read(files, tmp_path):
    (tmp_path / "etc/binary").write_bytes(b"\x06\x00\xff")
    assert files.read("/etc/binary") == "\x06\x00\ufffd"


def test_exists(files):
    assert files.exists("/etc")
    assert not files.exists("/etc/absent")
