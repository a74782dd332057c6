# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import (
    parse_flags,
    value_of,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.systemd import Word


def flags(*texts, effective=True):
    return parse_flags([Word(text, "/f", "V", effective) for text in texts])


@pytest.mark.parametrize(
    ("texts", "pairs"),
    [
        pytest.param(["/bin/a", "--b=c"], [("--b", "c")], id="equals"),
        pytest.param(["/bin/a", "--b", "c"], [("--b", "c")], id="blank"),
        pytest.param(["--b", "--c"], [("--b", None), ("--c", None)], id="boolean"),
        pytest.param(["--b="], [("--b", "")], id="empty"),
        pytest.param(["--b=c=d,e=f"], [("--b", "c=d,e=f")], id="equals-in-the-value"),
        pytest.param(["--a_b=c_d"], [("--a-b", "c_d")], id="underscore"),
        pytest.param(["-c", "d"], [("-c", "d")], id="short"),
        pytest.param(["/bin/a", "command"], [], id="none"),
    ],
)
def test_parse_flags(texts, pairs):
    assert [(flag.name, flag.value) for flag in flags(*texts)] == pairs


def test_a_value_does_not_come_from_words_without_effect():
    words = [Word("--b", "/f", None, True), Word("c", "/g", "V", False)]
    assert [flag.value for flag in parse_flags(words)] == [None]


def test_the_last_flag_wins():
    assert value_of(flags("--a=1", "-a", "2"), "--a", "-a") == "2"


def test_a_flag_without_effect_does_not_win():
    assert value_of(flags("--a=1") + flags("--a=2", effective=False), "--a") == "1"


def test_no_flag():
    assert value_of(flags("--a=1"), "--b") is None
