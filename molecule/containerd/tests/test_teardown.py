# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Teardown, after all other tests of the scenario: only what docs/teardown.md lists may differ."""

from __future__ import annotations

import footprint

OPERATIONS_ALLOWED = 3


def test_everything_but_the_engine_goes(laboratory):
    run = laboratory.playbook("metal.gpu.teardown")
    assert run.returncode == 0


def test_node_is_what_it_was(footprints, node):
    """Byte by byte, config.toml among them."""
    assert footprint.of_node(footprints, node) == []


def test_cluster_is_what_it_was(footprints):
    assert footprint.of_cluster(footprints) == []


def test_earlier_pod_keeps_running(laboratory):
    (work,) = laboratory.objects("pod", "admin")["status"]["containerStatuses"]
    assert (work["restartCount"], "running" in work["state"]) == (0, True)


def test_second_run_changes_nothing_and_is_cheap(laboratory):
    laboratory.second_run("metal.gpu.teardown", OPERATIONS_ALLOWED)
