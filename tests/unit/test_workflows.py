# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The workflows use recorded actions and few permissions, and run what the Makefile has.

The schema is that of SchemaStore, as check-jsonschema brings it. It knows no expressions.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PATHS = sorted((ROOT / ".github/workflows").glob("*.yml"))
ACTIONS = yaml.safe_load((ROOT / "tests/recorded/actions.yml").read_text())["actions"]
TARGETS = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)


def read(path: Path) -> dict[str, Any]:
    workflow: dict[str, Any] = yaml.safe_load(path.read_text())
    return workflow


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_schema(path: Path) -> None:
    schema = ["--builtin-schema", "vendor.github-workflows"]
    command = [sys.executable, "-m", "check_jsonschema", *schema]
    checked = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_actions_are_pinned_to_recorded_commits() -> None:
    used = {pin for path in PATHS for pin in re.findall(r"uses: (\S+ # \S+)", path.read_text())}
    every = sum(path.read_text().count("uses: ") for path in PATHS)
    recorded = {f"{one['name']}@{one['commit']} # {one['version']}" for one in ACTIONS}
    assert every > 10
    assert used == recorded
    names = [step["uses"] for path in PATHS for step in steps(path) if "uses" in step]
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name) for name in names)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_permissions_are_named_and_writing_is_for_releases(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    writing = {
        (name, permission)
        for name, job in workflow["jobs"].items()
        for permission, level in job.get("permissions", {}).items()
        if level == "write"
    }
    assert writing == (
        {
            ("attest", "attestations"),
            ("attest", "id-token"),
            ("github", "contents"),
            ("pypi", "id-token"),
        }
        if path.stem == "release"
        else set()
    )


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_jobs_end_and_checkouts_keep_no_credentials(path: Path) -> None:
    assert all("timeout-minutes" in job for job in read(path)["jobs"].values())
    for step in steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_commands_take_expressions_only_by_variables(path: Path) -> None:
    """What an expression gives would be a part of the command: a branch can have any name."""
    assert [step["run"] for step in steps(path) if "${{" in step.get("run", "")] == []


def test_every_scenario_and_every_target_exists() -> None:
    molecule, ci = (read(ROOT / f".github/workflows/{name}.yml") for name in ("molecule", "ci"))
    scenarios = sorted(path.parent.name for path in ROOT.glob("molecule/*/molecule.yml"))
    assert molecule["jobs"]["scenario"]["strategy"]["matrix"]["scenario"] == scenarios
    assert {*ci["jobs"]["checks"]["strategy"]["matrix"]["target"]} <= {*TARGETS}
    called = re.findall(r"make ([a-z-]+)", "".join(path.read_text() for path in PATHS))
    assert {*called} <= {*TARGETS}


def test_what_signs_or_publishes_installs_nothing_that_floats() -> None:
    jobs = read(ROOT / ".github/workflows/release.yml")["jobs"]
    runs = {
        name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()
    }
    assert runs["attest"] == []
    for name in ("pypi", "galaxy", "github"):
        assert jobs[name]["needs"] in ("attest", ["pypi", "galaxy"])
        assert not any(re.search(r"\bmake |bootstrap", run) for run in runs[name])
    (install,) = [run for run in (*runs["pypi"], *runs["galaxy"]) if "pip install" in run]
    assert "--require-hashes --only-binary=:all:" in install
    lines = (ROOT / install.split()[-1]).read_text().splitlines()
    locked = [line for line in lines if not line.startswith("#") and line]
    assert len(locked) > 5
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line) for line in locked)
