# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plans of several roles, as the action plugin and the Python library ask for them."""

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils import variables
from ansible_collections.metal.gpu.plugins.plugin_utils.components import planning
from ansible_collections.metal.gpu.tests.unit.support.healthy import containerd_node

REPOSITORY = {
    "containerd_repository": True,
    "nvidia_container_runtime_repository": True,
    "nvidia_container_runtime_engine": "auto",
    "nvidia_container_runtime_envvar": "ignore",
    "nvidia_driver_repository": True,
}


def values(role):
    defaults = {**variables.load_defaults(), **REPOSITORY}
    return {name: defaults[name] for name in planning.variables_of(role, defaults)}


@pytest.fixture(scope="module")
def node():
    return containerd_node().observed()


def plan(node, roles=planning.SITE, **shared):
    return planning.plan_roles("gpu-1", node, roles, values, {**planning.SHARED, **shared}, {})


def test_roles_of_other_engines_are_left_out(node):
    plans, problems = plan(node)
    assert problems == []
    assert [*plans] == [one for one in planning.SITE if one not in ("docker_ce", "crio")]


def test_one_role_that_cannot_be_planned_does_not_hide_the_others(node):
    def broken(role):
        if role == "containerd":
            raise ValueError("{{ no template }}")
        return values(role)

    plans, [problem] = planning.plan_roles(
        "gpu-1", node, planning.SITE, broken, planning.SHARED, {}
    )
    assert "nvidia_driver" in plans
    assert "containerd" not in plans
    assert (problem["code"], problem["host"]) == ("RUN_STOPPED", "gpu-1")
    assert "the plan of containerd" in problem["message"]


def test_variables_of_a_role():
    names = planning.variables_of("containerd", {"containerd_version", "docker_ce_version"})
    assert names == ["containerd_version"]
