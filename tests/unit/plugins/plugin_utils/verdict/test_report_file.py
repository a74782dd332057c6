# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.verdict import report_file

GPU = {"address": "0000:03:00.0", "uuid": "GPU-1"}
LAYERS = {"declared": None, "pci": 1}
VERDICT = {"host": "a", "gpus": [GPU], "layers": LAYERS, "findings": [], "ok": True}


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert report_file.read(str(path)) == ({}, [])
    assert report_file.write(str(path), [VERDICT], {}) == []
    assert report_file.write(str(path), [{**VERDICT, "host": "b"}], {}) == []
    entries, problems = report_file.read(str(path))
    assert problems == []
    assert entries["b"]["verdict"]["gpus"] == [GPU]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", ["", "{}", "no JSON", b"\xff"])
def test_a_file_that_is_no_report_stays(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    entries, (found,) = report_file.read(str(path))
    assert entries == {}
    assert (found["code"], found["severity"]) == ("REPORT_UNUSABLE", "notice")


@pytest.mark.parametrize("name", ["missing/report.json", "."])
def test_a_place_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    (found,) = report_file.write(str(tmp_path / name), [VERDICT], {})
    assert f"the report {tmp_path / name} cannot be written" in found["message"]
    assert list(tmp_path.iterdir()) == []


def test_without_a_path_there_is_no_report() -> None:
    assert report_file.read("") == ({}, [])
