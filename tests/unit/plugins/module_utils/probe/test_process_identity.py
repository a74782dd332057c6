# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe.process_identity import (
    is_gone,
    read_identity,
)

# Field 22 is the start time; the name may hold spaces and parentheses.
STAT = "{pid} (a ) S (b) {state} 1" + " 0" * 17 + " {start} 4096 0\n"


def plant(root, *, boot="b00t", namespace="pid:[1]", processes=((42, "S", 7),)):
    """Make a /proc of plain files."""
    (root / "sys/kernel/random").mkdir(parents=True)
    (root / "sys/kernel/random/boot_id").write_text(f"{boot}\n")
    (root / "self/ns").mkdir(parents=True)
    (root / "self/ns/pid").symlink_to(namespace)
    for pid, state, start in processes:
        (root / str(pid)).mkdir()
        (root / str(pid) / "stat").write_text(STAT.format(pid=pid, state=state, start=start))
    return root


@pytest.fixture
def identity(tmp_path):
    return read_identity(42, plant(tmp_path / "then"))


def test_read_identity(identity):
    assert identity == "b00t/pid:[1] 42 7"


@pytest.mark.parametrize(
    ("now", "gone"),
    [
        pytest.param({}, False, id="alive"),
        pytest.param({"processes": ()}, True, id="ended"),
        pytest.param({"processes": [(42, "S", 9)]}, True, id="id-used-again"),
        pytest.param({"processes": [(42, "Z", 7)]}, True, id="zombie"),
        pytest.param({"boot": "other", "processes": ()}, False, id="another-machine"),
        pytest.param({"namespace": "pid:[2]", "processes": ()}, False, id="another-container"),
    ],
)
def test_is_gone(tmp_path, identity, now, gone):
    assert is_gone(identity, plant(tmp_path / "now", **now)) is gone


@pytest.mark.parametrize("text", ["", "what", "b00t/pid:[1]", "b00t/pid:[1] "])
def test_is_gone_does_not_know(tmp_path, text):
    assert is_gone(text, plant(tmp_path / "now")) is False


def test_without_proc_nothing_is_known(tmp_path):
    assert read_identity(42, tmp_path) == ""
    assert is_gone("b00t/pid:[1] 42 7", tmp_path) is False


def test_this_process_is_alive():
    assert is_gone(read_identity(os.getpid())) is False
