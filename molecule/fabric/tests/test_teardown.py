# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Teardown: Fabric Manager and nvlsm go with the driver, and nothing of them stays."""

from __future__ import annotations

import footprint


def test_everything_goes(laboratory):
    run = laboratory.playbook("metal.gpu.teardown")
    assert run.returncode == 0
    for node in ("gpu-1", "gpu-2"):
        host = laboratory.host(node)
        assert not host.package("nvidia-fabricmanager").is_installed
        assert not host.package("nvlsm").is_installed
        assert "nvidia-fabricmanager" not in host.check_output("ls -R /etc/systemd/system")


def test_node_is_what_it_was(footprints, node):
    assert footprint.of_node(footprints, node) == []


def test_cluster_is_what_it_was(footprints):
    assert footprint.of_cluster(footprints) == []
