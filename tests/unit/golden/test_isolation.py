# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of docs/isolation.md: what the scenarios have recorded, and nothing else.

To write it anew: `python -m pytest tests/unit/golden --update-golden`
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from ansible_collections.metal.gpu.plugins.module_utils.cluster import leak_docker, leak_pods
from ansible_collections.metal.gpu.tests.unit.golden.documents import assert_documented, table
from ansible_collections.metal.gpu.tests.unit.golden.nodes import ROOT

RECORD = ROOT / "tests/recorded/isolation_results.yml"


def results() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RECORD.read_text())
    return found


def heading(one: dict[str, Any]) -> str:
    """Return the name of a case, with the version of its engine."""
    case, engine = one["case"], one["engine"]
    return case if engine in case else f"{case} ({engine})"


def rows() -> Iterator[list[str]]:
    cases = results()
    yield ["attempt", *map(heading, cases)]
    for name, text in leak_pods.ATTEMPTS.items():
        found = (one["attempts"].get(name, "not tried") for one in cases)
        words = (f"**{state}**" if state == "leaked" else state for state in found)
        yield [f"`{name}`: {text.replace('|', chr(92) + '|')}", *words]


def test_results_are_documented(is_update: bool) -> None:
    document = ROOT / "docs/isolation.md"
    assert_documented(document, "results", table(rows()), is_update=is_update)


def test_nothing_leaks_by_default_and_each_way_leaks_somewhere() -> None:
    """A test that cannot fail proves nothing: with the protection off, it has failed."""
    by_case = {one["case"]: one["attempts"] for one in results()}
    protected = [found for case, found in by_case.items() if case in PROTECTED]
    assert protected
    for found in protected:
        assert {*found.values()} <= {"nothing", "refused", "by design"}
    for case, found in by_case.items():
        tried = {*leak_docker.ATTEMPTS} if case == WITHOUT_PODS else {*leak_pods.ATTEMPTS}
        assert {*found} == tried, case
    leaked = {
        name for found in by_case.values() for name, state in found.items() if state == "leaked"
    }
    assert {"image_variable", "pod_variable"} <= leaked


WITHOUT_PODS = "docker without Kubernetes"
PROTECTED = (
    "containerd",
    "containerd 1.6.20, default runtime nvidia, guard",
    "containerd 1.7.24, guard",
    "containerd, default runtime nvidia, guard",
    "crio",
    "crio, default runtime nvidia, guard",
    "docker, guard",
    WITHOUT_PODS,
)
