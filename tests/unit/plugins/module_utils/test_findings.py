# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.findings import (
    CATALOGUE,
    DOCUMENT,
    Meaning,
    UnknownCode,
    finding,
)

ROOT = Path(__file__).parents[4]


def fields(meaning: Meaning) -> set[str]:
    parsed = string.Formatter().parse(meaning.message + meaning.remedy)
    return {name for _text, name, _spec, _conversion in parsed if name} - {"host"}


@pytest.mark.parametrize("code", CATALOGUE)
def test_each_code_has_a_section(code: str) -> None:
    document = (ROOT / DOCUMENT).read_text()
    assert re.search(rf"^### {code}\n\n\*{CATALOGUE[code].severity.capitalize()}", document, re.M)


def test_each_section_has_a_code() -> None:
    headings = re.findall(r"^### ([A-Z0-9_]+)$", (ROOT / DOCUMENT).read_text(), re.MULTILINE)
    assert headings == list(CATALOGUE)


@pytest.mark.parametrize("code", CATALOGUE)
def test_texts_take_their_evidence(code: str) -> None:
    evidence = dict.fromkeys(fields(CATALOGUE[code]), "EVIDENCE")
    found = finding(code, "gpu-1", **evidence)
    assert found["message"].startswith("gpu-1: ")
    assert found["reference"] == f"docs/troubleshooting.md#{code.lower()}"
    assert found["remedy"]


@pytest.mark.parametrize("code", CATALOGUE)
def test_texts_show_no_credentials_and_are_whole_otherwise(code: str) -> None:
    meaning = CATALOGUE[code]
    url = "https://me:CANARY@mirror.example/"
    found = finding(code, "gpu-1", **dict.fromkeys(fields(meaning), url))
    hidden = dict.fromkeys(fields(meaning), "https://***@mirror.example/")
    assert found["message"] == "gpu-1: " + meaning.message.format(host="gpu-1", **hidden)
    assert found["remedy"] == meaning.remedy.format(host="gpu-1", **hidden)


def test_unknown_code_is_a_bug() -> None:
    with pytest.raises(UnknownCode):
        finding("NO_SUCH_CODE", "gpu-1")
