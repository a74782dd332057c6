# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A program that does not answer does not show that nothing is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.verdict.reconcile import reconcile
from ansible_collections.metal.gpu.tests.unit.support import healthy
from ansible_collections.metal.gpu.tests.unit.support.healthy import Node

LOCKED = "rpm: error: cannot open Packages database in /var/lib/rpm"
NO_BUS = "Failed to connect to bus: Connection refused"
STATES = ("present", "absent")


def packages(rc: int | None, stderr: str = "", rows: int = 0) -> Callable[[Node], None]:
    def change(node: Node) -> None:
        output = node.raw["outputs"]["packages"]
        lines = output["stdout"].splitlines(keepends=True)
        output |= {"rc": rc, "stdout": "".join(lines[:rows]), "stderr": stderr}

    return change


def units(*gone: str, rc: int | None = 0, stderr: str = "") -> Callable[[Node], None]:
    """Let systemctl omit these units, or all units if none is given."""

    def change(node: Node) -> None:
        node.raw["outputs"]["systemctl"] |= {"rc": rc, "stderr": stderr}
        for name in gone or (*node.raw["units"],):
            del node.raw["units"][name]

    return change


def no_package_manager(node: Node) -> None:
    del node.raw["outputs"]["packages"]


def no_systemctl(node: Node) -> None:
    units()(node)
    del node.raw["outputs"]["systemctl"]


def half_a_row(node: Node) -> None:
    del node.raw["units"]["kubelet.service"]["ActiveState"]


SILENCES = [
    pytest.param(packages(None), "PACKAGES_UNKNOWN", "no answer in time", id="timeout"),
    pytest.param(packages(None, rows=3), "PACKAGES_UNKNOWN", "no answer in time", id="cut off"),
    pytest.param(packages(2, "dpkg-query: error: x", 3), "PACKAGES_UNKNOWN", "x", id="half"),
    pytest.param(packages(1, LOCKED), "PACKAGES_UNKNOWN", LOCKED, id="rpm, which exits with 1"),
    pytest.param(packages(137), "PACKAGES_UNKNOWN", "exit code 137", id="killed"),
    pytest.param(no_package_manager, "PACKAGES_UNKNOWN", "not found", id="no program"),
    pytest.param(units(rc=None), "UNITS_UNKNOWN", "no answer in time", id="systemctl hangs"),
    pytest.param(units(rc=1, stderr=NO_BUS), "UNITS_UNKNOWN", NO_BUS, id="no bus"),
    pytest.param(
        units("kubelet.service", rc=None), "UNITS_UNKNOWN", "kubelet.service", id="a row is missing"
    ),
    pytest.param(half_a_row, "UNITS_UNKNOWN", "kubelet.service", id="half a row"),
    pytest.param(no_systemctl, "UNITS_UNKNOWN", "not found", id="no systemctl"),
]


@pytest.fixture(scope="module", params=["containerd", "docker"])
def sound(request: pytest.FixtureRequest) -> Node:
    return healthy.containerd_node() if request.param == "containerd" else healthy.docker_node()


REJECTED = "Unit name kubelet.service is neither a valid invocation ID nor unit name."


@pytest.mark.parametrize(
    ("error", "unit", "advice"),
    [
        pytest.param(REJECTED, "kubelet.service", "the file of this unit", id="one unit"),
        pytest.param(NO_BUS, "containerd.service", "systemctl daemon-reexec", id="systemd"),
    ],
)
def test_advice_is_about_the_unit_that_systemd_rejects(
    sound: Node, error: str, unit: str, advice: str
) -> None:
    node = sound.copy()
    units("containerd.service", "kubelet.service", rc=1, stderr=error)(node)
    (found,) = node.plans(node.observed())["preflight"]["refusals"]
    assert f"`systemctl show {unit}`" in found["remedy"]
    assert advice in found["remedy"]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("silence", "code", "words"), SILENCES)
def test_every_plan_refuses_an_unknown_state(
    sound: Node, silence: Callable[[Node], None], code: str, words: str, state: str
) -> None:
    node = sound.copy()
    silence(node)
    plans = node.plans(node.observed(), state=state, roles=healthy.ROLES)
    if code == "PACKAGES_UNKNOWN":
        del plans["kubelet_device_plugins"]  # the role changes no package
    for role, plan in plans.items():
        assert code in [found["code"] for found in plan["refusals"]], role
        assert plan["steps"] == [], role
        assert plan["notices"] == [], role
        (found,) = (found for found in plan["refusals"] if found["code"] == code)
        assert words in found["message"]


@pytest.mark.parametrize(("silence", "code", "words"), SILENCES)
@pytest.mark.parametrize("has_plans", [True, False])
def test_verify_reports_programs_that_did_not_answer(
    sound: Node, silence: Callable[[Node], None], code: str, words: str, *, has_plans: bool
) -> None:
    node = sound.copy()
    silence(node)
    observed = node.observed()
    plans = node.plans(observed) if has_plans else {}
    verdict = reconcile("gpu-1", observed, node.declared, node.cluster, node.smoke, plans=plans)
    assert [found["code"] for found in verdict["findings"]] == [code]
    assert words in verdict["findings"][0]["message"]
    assert not verdict["ok"]


def test_no_match_is_an_answer(sound: Node) -> None:
    """dpkg-query exits with 1 if one of several patterns matches nothing."""
    node = sound.copy()
    packages(1, "dpkg-query: no packages found matching libcuda1\n", 99)(node)
    assert node.codes() == []


def test_units_are_not_unknown_without_systemd(sound: Node) -> None:
    node = sound.copy()
    no_systemctl(node)
    node.raw["exists"]["systemd"] = False
    observed: dict[str, Any] = node.observed()
    assert observed["systemd"] == {"unknown": [], "error": None}
    assert node.plans(observed)["preflight"]["refusals"][0]["code"] == "INIT_UNSUPPORTED"
    assert len(node.plans(observed)["preflight"]["refusals"]) == 1


def test_a_kubelet_in_an_unknown_state_does_not_count_as_stopped(sound: Node) -> None:
    node = sound.copy()
    units("kubelet.service")(node)
    kubelet = node.observed()["kubelet"]
    assert (kubelet["installed"], kubelet["running"]) == (True, None)
