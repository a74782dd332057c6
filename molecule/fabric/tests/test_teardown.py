# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Teardown: Fabric Manager goes with the driver, and nothing of it stays."""

from __future__ import annotations

import footprint


def test_everything_goes(laboratory):
    run = laboratory.playbook("metal.gpu.teardown")
    assert run.returncode == 0
    host = laboratory.host("gpu-1")
    assert not host.package("nvidia-fabricmanager").is_installed
    assert "nvidia-fabricmanager" not in host.check_output("ls -R /etc/systemd/system")


def test_node_is_what_it_was(footprints):
    before, after = (each["nodes"]["gpu-1"] for each in footprints)
    assert footprint.differences(before, after) == []


def test_cluster_is_what_it_was(footprints):
    before, after = (each["cluster"] for each in footprints)
    assert after == before
