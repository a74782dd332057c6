# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Teardown without the internet. The file name makes pytest run it last."""

from __future__ import annotations

import footprint


def test_everything_goes(laboratory):
    run = laboratory.playbook("metal.gpu.teardown")
    assert run.returncode == 0


def test_node_is_what_it_was(footprints, node):
    assert footprint.of_node(footprints, node) == []


def test_cluster_is_what_it_was(footprints):
    assert footprint.of_cluster(footprints) == []
