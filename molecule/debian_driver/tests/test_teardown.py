# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Teardown: the admin's driver stays, everything that this collection added goes."""

from __future__ import annotations

import footprint
import pytest


def test_admin_keeps_the_driver(laboratory):
    run = laboratory.playbook("metal.gpu.teardown")
    assert run.returncode == 0
    assert "DRIVER_OF_ADMIN gpu-1: " in run.words
    host = laboratory.host("gpu-1")
    assert len(host.check_output("nvidia-smi -L").splitlines()) == 4


def test_driver_of_this_collection_goes(laboratory):
    host = laboratory.host("gpu-3")
    assert host.check_output("dpkg --list '*nvidia*' | grep ^ii || true") == ""
    assert "nvidia" not in host.check_output("lsmod")
    assert host.check_output("ls /etc/apt/sources.list.d").split() == ["debian.sources"]
    again = laboratory.playbook("metal.gpu.teardown")
    assert "gpu-3" in again.unchanged


@pytest.mark.parametrize("node", ["gpu-1", "gpu-2", "gpu-3"])
def test_node_is_what_it_was(footprints, node):
    assert footprint.of_node(footprints, node) == []


def test_cluster_is_what_it_was(footprints):
    assert footprint.of_cluster(footprints) == []
