# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""containerd.io contains runc, so the package manager removes the package runc."""

from __future__ import annotations

from typing import Any

from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    VIRGIN,
    codes,
    merge,
    plan,
    without_nulls,
)

LACKING = {"engines": {"containerd": {"installed": False}}, "packages": {"containerd.io": None}}


def with_runc(*, held: bool) -> dict[str, Any]:
    return merge(VIRGIN, {**LACKING, "packages": {"runc": {"version": "1.1.5", "held": held}}})


def test_plan_names_what_goes() -> None:
    planned = plan("containerd", with_runc(held=False))
    assert planned["data"]["may_remove"] == ["runc"]
    (reason,) = [step["reason"] for step in planned["steps"] if step["slug"] == "install"]
    assert reason == "containerd is not installed; this removes the conflicting runc"


def test_package_that_the_admin_holds_stays() -> None:
    assert codes(plan("containerd", with_runc(held=True))) == ["PACKAGES_HELD"]


def test_nothing_goes_without_a_conflict() -> None:
    assert plan("containerd", without_nulls(merge(VIRGIN, LACKING)))["data"]["may_remove"] == []
