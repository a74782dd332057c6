# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.verdict import report_file

GPU = {"address": "0000:03:00.0", "uuid": "GPU-1"}
LAYERS = {"declared": None, "pci": 1}
SEEN = {"pci": {"number": 1, "gpus": [GPU["address"]]}}
VERDICT = {
    "host": "a", "gpus": [GPU], "layers": LAYERS, "seen": SEEN, "findings": [], "ok": True
}  # fmt: skip


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert report_file.read(str(path)) == ({}, [])
    assert report_file.write(str(path), [VERDICT], {}) == []
    assert report_file.write(str(path), [{**VERDICT, "host": "b"}], {}) == []
    entries, problems = report_file.read(str(path))
    assert problems == []
    assert entries["b"]["verdict"]["gpus"] == [GPU]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", ["", "{}", "no JSON", "[" * 100_000, b"\xff"])
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


def test_a_link_stays_and_the_mode_too(tmp_path: Path) -> None:
    path, link = tmp_path / "shared" / "report.json", tmp_path / "report.json"
    path.parent.mkdir()
    link.symlink_to(path)
    assert report_file.write(str(path), [VERDICT], {}) == []
    path.chmod(0o644)  # for the user of a monitoring program
    assert report_file.write(str(link), [{**VERDICT, "host": "b"}], {}) == []
    assert link.is_symlink()
    assert "b" in report_file.read(str(path))[0]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(path.parent.iterdir()) == [path]


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow beyond 100 bytes, which includes the log of pytest."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_former_report_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("former", encoding="utf-8")
    with full_disk():
        (found,) = report_file.write(str(path), [VERDICT], {})
    assert found["code"] == "REPORT_UNUSABLE"
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text(encoding="utf-8") == "former"


def test_without_a_path_there_is_no_report() -> None:
    assert report_file.read("") == ({}, [])
