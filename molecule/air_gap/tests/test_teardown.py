# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Teardown without the internet. The file name makes pytest run it last."""

from __future__ import annotations

import footprint


def test_everything_goes(laboratory):
    run = laboratory.playbook("metal.gpu.teardown")
    assert run.returncode == 0


def test_node_is_what_it_was(footprints, node):
    """The engine of gpu-2 stays, because its kubelet uses it, with what undoes its settings."""
    folder = "/var/lib/metal-gpu/config_document"
    history = f"{folder}/%2Fetc%2Fcontainerd%2Fconfig.toml@metal.gpu.containerd"
    left = footprint.of_node(footprints, node)
    assert [line for line in left if node == "gpu-1" or not line.startswith(history)] == []


def test_cluster_is_what_it_was(footprints):
    assert footprint.of_cluster(footprints) == []
