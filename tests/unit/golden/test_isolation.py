# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of docs/isolation.md: what the scenarios have recorded, and nothing else.

To write it anew: `python -m pytest tests/unit/golden --update-golden`
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.cluster import leak_docker, leak_pods
from ansible_collections.metal.gpu.tests.unit.golden.documents import assert_documented, table
from ansible_collections.metal.gpu.tests.unit.golden.nodes import ROOT

DOCUMENT = ROOT / "docs/isolation.md"
RECORD = ROOT / "tests/recorded/isolation_results.yml"
# The columns. The controls have none: their results are the same in each row.
COLUMNS = {
    leak_pods.IMAGE: "image",
    leak_pods.POD: "pod",
    leak_pods.MOUNT: "mount",
    leak_pods.CDI: "annotation",
    leak_pods.CLASS: "class",
    leak_pods.CLASS_CDI: "class and annotation",
    leak_pods.CLASS_MOUNT: "class and mount",
    leak_pods.SECOND: "second",
    leak_pods.INIT: "init",
    leak_pods.EPHEMERAL: "ephemeral",
    leak_pods.UNKNOWN: "unknown",
}
CONTROLS = {leak_pods.PLAIN: "nothing", leak_pods.PRIVILEGED: "by design"}
NAMES = {"crio": "CRI-O", "docker": "Docker"}

# Attempts that are a leak nowhere, and why they can fail nevertheless.
NEVER_LEAKS = {
    leak_pods.CDI: "with the RuntimeClass, the same annotation leaks",
    leak_pods.CLASS_MOUNT: "by design, where the toolkit takes requests from mounts",
}

WITHOUT_PODS = "docker without Kubernetes"
# Its node shares a DaemonSet with one of containerd 1.6, so only the guard protects it.
WITHOUT_GUARD = "containerd 1.7.24"
# Each engine has a row as the roles set it up, but for Docker below a kubelet, whose guard only
# warns: it leaks as without the guard.
DEFAULTS = {"containerd", "crio", "k0s", "k3s", WITHOUT_PODS}


def is_default(case: str) -> bool:
    """Tell whether a node is as the roles set it up without variables."""
    return "," not in case and case != WITHOUT_GUARD


def is_protected(case: str) -> bool:
    """Tell whether no container may see a GPU that it did not request."""
    return is_default(case) or case.split(", ")[-1] == "guard"


def results() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RECORD.read_text())
    return found


def engine_and_setting(one: dict[str, Any]) -> tuple[str, str]:
    """Return the engine of a case with its version, and how it is set up."""
    what, _comma, setting = one["case"].partition(", ")
    name, _space, version = one["engine"].partition(" ")
    engine = f"{NAMES.get(name, name)} {version}"
    if what.startswith(name):
        engine += re.sub(r"^ [\d.]+", "", what.removeprefix(name))
    else:
        engine = f"{what} ({engine})"
    if is_default(one["case"]):
        return engine, "default"
    return engine, setting or "no guard"


def rows() -> Iterator[list[str]]:
    """Yield the heading, and a row for each case: the default is the first one of its engine."""
    yield ["engine", "setting", *COLUMNS.values()]
    cases = [(*engine_and_setting(one), one) for one in results()]
    for engine, setting, one in sorted(cases, key=by_engine):
        found = (one["attempts"].get(name, "not tried") for name in COLUMNS)
        words = (f"**{state}**" if state == "leaked" else state for state in found)
        yield [engine, setting, *words]


def by_engine(case: tuple[str, str, dict[str, Any]]) -> tuple[str, bool, str]:
    engine, setting, one = case
    return engine.casefold(), not is_default(one["case"]), setting


def legend() -> Iterator[list[str]]:
    yield ["column", "attempt", "what the pod has"]
    for name, text in leak_pods.ATTEMPTS.items():
        yield [
            COLUMNS.get(name, f"none: always `{CONTROLS.get(name)}`"),
            f"`{name}`",
            text.replace("|", r"\|"),
        ]


def test_results_are_documented(is_update: bool) -> None:
    assert_documented(DOCUMENT, "results", table(rows()), is_update=is_update)


def test_attempts_are_documented(is_update: bool) -> None:
    assert {*COLUMNS, *CONTROLS} == {*leak_pods.ATTEMPTS}
    assert {*CONTROLS} == leak_pods.CONTROLS
    assert_documented(DOCUMENT, "attempts", table(legend()), is_update=is_update)


def test_controls_are_alike_in_each_row() -> None:
    """So the table needs no columns for them."""
    for one in results():
        assert {name: one["attempts"][name] for name in CONTROLS} == CONTROLS, one["case"]


@pytest.mark.parametrize(
    ("case", "default", "protected"),
    [
        *((case, True, True) for case in sorted(DEFAULTS)),
        ("docker, guard", False, True),
        ("docker 26.1, guard", False, True),
        ("docker 26.1, no guard", False, False),
        ("docker, volume-mounts, no guard", False, False),
        (f"{WITHOUT_PODS}, default runtime nvidia", False, False),
        ("containerd 1.7.24", False, False),
        ("containerd 1.7.24, guard", False, True),
        ("crio, default runtime nvidia, guard", False, True),
        ("crio, default runtime nvidia, no guard", False, False),
        ("crio, toolkit's own settings", False, False),
    ],
)
def test_what_the_name_of_a_case_says(case: str, default: bool, protected: bool) -> None:
    assert (is_default(case), is_protected(case)) == (default, protected)


def test_nothing_leaks_by_default_and_each_way_leaks_somewhere() -> None:
    """A test that cannot fail proves nothing: with the protection off, it has failed."""
    by_case = {one["case"]: one["attempts"] for one in results()}
    assert {*by_case} >= DEFAULTS
    for case, found in by_case.items():
        if is_protected(case):
            assert {*found.values()} <= {"nothing", "refused", "by design"}, case
        has_pods = not case.startswith(WITHOUT_PODS)
        tried = {*leak_pods.ATTEMPTS} if has_pods else {*leak_docker.ATTEMPTS}
        assert {*found} == tried, case
    states = {(name, state) for found in by_case.values() for name, state in found.items()}
    leaked = {name for name, state in states if state == "leaked"}
    assert leaked == {*leak_pods.ATTEMPTS} - {*CONTROLS} - {*NEVER_LEAKS}
    assert (leak_pods.CLASS_MOUNT, "by design") in states
