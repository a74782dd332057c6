# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every finding is provoked by a test: in a scenario, or by a test of what reports it.

A text about a finding is no provocation. So only texts of the code count, and neither comments nor
docstrings, nor tests that go through all codes of the catalogue.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.findings import CATALOGUE

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"\b[A-Z][A-Z0-9_]+\b")
# They are about texts, or about any finding.
NOT_PROVOKING = {
    "test_documents.py",
    "test_findings.py",
    "test_provoked.py",
    "test_quiet.py",
    "test_report.py",
}
# A few faults that scenarios must have, because an operator meets them every day.
OF_SCENARIOS = {
    *("CLUSTER_UNUSABLE", "NODE_UNREACHABLE", "KUBELET_STOPPED", "ENGINE_STOPPED"),
    *("NVML_UNAVAILABLE", "NVML_COUNT_DIFFERS", "GPU_FAULTY", "GPU_ERROR_LOGGED"),
    *("CUDA_UNAVAILABLE", "DEVICE_FILE_OUTDATED", "DEVICE_FILE_BLOCKED"),
    *("DEVICE_PLUGIN_MISSING", "DEVICE_PLUGIN_NOT_SELECTED", "DEVICE_PLUGIN_CRASHES"),
    *("DEVICE_PLUGIN_IMAGE_UNAVAILABLE", "DEVICE_PLUGIN_UNREGISTERED", "DEVICE_PLUGIN_TWICE"),
    *("DRA_DRIVER_BESIDE", "NODE_TAINTED", "NODE_PRESSURE", "NODE_FULL", "POD_REJECTED"),
    *("POD_OVER_QUOTA", "CDI_UNRESOLVABLE", "RUNTIME_UNUSABLE", "DRIFTED", "NODE_RESTARTED"),
    *("GPU_PASSED_THROUGH", "NOUVEAU_LOADED", "REBOOT_NEEDED", "NO_GPU"),
}


@cache
def named(folder: str) -> dict[str, set[str]]:
    """Return the files of tests whose code names each finding."""
    found: dict[str, set[str]] = {}
    for path in sorted(ROOT.glob(folder)):
        if path.name in NOT_PROVOKING:
            continue
        tree = ast.parse(path.read_text())
        statements = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
        texts = (
            one.value
            for one in ast.walk(tree)
            if isinstance(one, ast.Constant)
            and isinstance(one.value, str)
            and id(one) not in statements
        )
        for text in texts:
            for code in CODE.findall(text):
                found.setdefault(code, set()).add(str(path.relative_to(ROOT)))
    return found


@pytest.mark.parametrize("code", CATALOGUE)
def test_every_finding_is_provoked(code: str) -> None:
    assert named("molecule/*/tests/*.py").get(code) or named("tests/unit/**/*.py").get(code)


@pytest.mark.parametrize("code", sorted(OF_SCENARIOS))
def test_what_an_operator_meets_is_provoked_in_the_laboratory(code: str) -> None:
    assert named("molecule/*/tests/*.py").get(code)


def test_at_least_a_third_of_the_catalogue_is_seen_in_the_laboratory() -> None:
    seen = named("molecule/*/tests/*.py").keys() & CATALOGUE.keys()
    assert len(seen) >= 90
