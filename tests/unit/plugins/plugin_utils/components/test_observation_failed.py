# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A component that raises is a finding of its node. The others are observed."""

from __future__ import annotations

import re

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import nvidia_smi
from ansible_collections.metal.gpu.plugins.module_utils.verdict.reconcile import reconcile
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import (
    ObservationFailed,
    interpret,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    why_unobserved,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import admission
from ansible_collections.metal.gpu.tests.unit.support import healthy


def defective(*_arguments: object) -> None:
    raise ValueError("no number: password=hunter2")


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> ObservationFailed:
    monkeypatch.setattr(nvidia_smi, "place", defective)
    with pytest.raises(ObservationFailed) as caught:
        interpret(healthy.containerd_node().raw)
    return caught.value


def test_failure_has_component_error_and_place(failed: ObservationFailed) -> None:
    [failure] = failed.failures
    assert (failure["component"], failure["error"]) == (
        "driver",
        "ValueError: no number: password=***",
    )
    # The innermost calls in our code.
    path = r"plugins/plugin_utils/components/driver/observed.py:\d+ in "
    assert re.fullmatch(rf"{path}observe, {path}_nvml", failure["place"])


def test_the_rest_is_observed(failed: ObservationFailed) -> None:
    assert not {"driver", "nvml", "device_files", "device_users"} & set(failed.rest)
    assert {"os", "toolkit", "cdi", "engines", "kubelet", "ours"} <= set(failed.rest)


def test_finding_stops_its_node_in_preflight_and_verify(failed: ObservationFailed) -> None:
    result = {"failed": True, "msg": f"Task failed: {failed}", "failures": failed.failures}
    found = why_unobserved("gpu-1", result)
    assert found["code"] == "OBSERVATION_FAILED"
    assert "component driver: ValueError: no number: password=***" in found["message"]
    assert " in _nvml" in found["message"]
    reports = {
        "gpu-1": {
            "refusals": [found],
            "node_name": "",
            "kubelet_running": None,
            "has_work": False,
            "notices": [],
        },
        "gpu-2": {
            "refusals": [],
            "node_name": "gpu-2",
            "kubelet_running": True,
            "has_work": False,
            "notices": [],
        },
    }
    admitted = admission(reports, {"nodes": {}})
    assert (admitted["begin"], list(admitted["stopped"])) == (True, ["gpu-1"])
    verdict = reconcile("gpu-1", None, 2, None, None, [found])
    assert [one["code"] for one in verdict["findings"]] == ["OBSERVATION_FAILED"]
    assert not verdict["ok"]


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        # pyenv's shim of a version that is not chosen; a user's report of November 2026.
        (
            "pyenv: python3.13: command not found\n\nThe `python3.13' command exists in these "
            "Python versions:\n  3.13.0\n\nNote: See 'pyenv help global' for tips on "
            "allowing both\n      Python versions to be found at the same time.\n",
            "x: pyenv: python3.13: command not found; name the node's Python with "
            "ansible_python_interpreter in the inventory",
        ),
        ("Traceback (most recent call last):\n  File\nOSError: y\n", "x: OSError: y"),
        ("", "x"),
    ],
)
def test_why_a_python_does_not_answer(printed, expected):
    found = why_unobserved("gpu-1", {"msg": "x", "module_stderr": printed})
    assert found["code"] == "NODE_NOT_OBSERVED"
    assert found["message"].endswith(f"not observed: {expected}")
