# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import cuda_errors

RECORDED = Path(__file__).parents[4] / "recorded"
FAULTS = yaml.safe_load((RECORDED / "cuda_errors.yml").read_text())["errors"]
PROGRAMS = yaml.safe_load((RECORDED / "cuda_programs.yml").read_text())
WORDS = {row["number"]: row["words"] for row in [*PROGRAMS["errors"], *FAULTS] if "words" in row}


def test_every_recorded_error_is_known_and_no_other() -> None:
    assert sorted(cuda_errors.ERRORS) == [row["number"] for row in FAULTS]


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: str(row["number"]))
def test_errors_are_recognised_by_their_words(row: dict[str, Any]) -> None:
    words = PROGRAMS["vectoradd"]["stderr"]["launch_failed"] % WORDS[row["number"]]
    for printed in (words, words.upper()):
        known = cuda_errors.recognise(printed)
        assert known is not None
        assert (known.number, known.fault) == (row["number"], row["fault"])
        assert known.cause
        # What to do about an image is in the finding's own remedy.
        assert bool(known.remedy) is (known.fault != cuda_errors.IMAGE)


def test_words_of_old_programs_are_recognised() -> None:
    known = cuda_errors.recognise("all CUDA-capable devices are busy or unavailable")
    assert known is not None
    assert known.number == 46


@pytest.mark.parametrize("words", ["", "Segmentation fault", "Result verification failed"])
def test_other_words_are_no_error_of_cuda(words: str) -> None:
    assert cuda_errors.recognise(words) is None


def test_words_of_a_wrong_result_are_as_recorded() -> None:
    assert PROGRAMS["vectoradd"]["stderr"]["wrong"].startswith(cuda_errors.WRONG_RESULT)
