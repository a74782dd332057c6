# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What scenarios record about isolation, and compare with the record: molecule/shared/leaks.py."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

LEAKS = Path(__file__).parents[2] / "molecule/shared/leaks.py"
ATTEMPTS = {"plain": "nothing", "privileged": "by design"}


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A checkout of its own, with the program and a record with one row."""
    program = tmp_path / "molecule/shared/leaks.py"
    program.parent.mkdir(parents=True)
    program.write_bytes(LEAKS.read_bytes())
    path = tmp_path / "tests/recorded/isolation_results.yml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump([{"case": "docker", "attempts": ATTEMPTS}]))
    return path


def compare(record: Path, case: str, attempts: dict[str, str]) -> None:
    program: dict[str, Any] = runpy.run_path(str(record.parents[2] / "molecule/shared/leaks.py"))
    program["compare"](case, attempts, "docker 29.8.1", kubernetes=None)


def test_scenario_records_its_row_and_leaves_others_alone(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORD_ISOLATION", "1")
    case = "containerd 1.6.20, guard"
    compare(record, case, {"plain": "unproven"})
    compare(record, case, ATTEMPTS)
    rows = yaml.safe_load(record.read_text())
    assert [(row["case"], row["attempts"]) for row in rows] == [
        (case, ATTEMPTS),
        ("docker", ATTEMPTS),
    ]
    monkeypatch.delenv("RECORD_ISOLATION")
    compare(record, case, ATTEMPTS)


@pytest.mark.parametrize(
    ("case", "attempts"),
    [("docker", {**ATTEMPTS, "plain": "leaked"}), ("docker without Kubernetes", ATTEMPTS)],
)
def test_other_results_and_a_case_without_a_row_fail_the_scenario(
    record: Path, monkeypatch: pytest.MonkeyPatch, case: str, attempts: dict[str, str]
) -> None:
    monkeypatch.delenv("RECORD_ISOLATION", raising=False)
    before = record.read_bytes()
    with pytest.raises(AssertionError, match=f"{case}: record it with RECORD_ISOLATION=1"):
        compare(record, case, attempts)
    assert record.read_bytes() == before
