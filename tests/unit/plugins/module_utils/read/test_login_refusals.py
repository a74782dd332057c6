# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import login_refusals

RECORD = Path(__file__).parents[4] / "recorded" / "symptoms.yml"


@pytest.mark.parametrize("words", login_refusals.CODES)
def test_words_are_those_of_the_record(words: str) -> None:
    assert words in [one["text"] for one in yaml.safe_load(RECORD.read_text())["texts"]]


@pytest.mark.parametrize("words", login_refusals.CODES)
def test_words_are_found_among_others(words: str) -> None:
    found = login_refusals.find(f"Last login: today\r\n{words}\r\n")
    assert found == (login_refusals.CODES[words], words)


def test_other_words() -> None:
    assert login_refusals.find("sudo: a password is required") is None
