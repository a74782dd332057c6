# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest


@pytest.fixture
def observe(tmp_path):
    """Return gpu_node of the planted node, on which the given programs exist."""
    # Not above: pytest may read this file before the collection can be imported.
    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.modules import node_info
    from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import interpret
    from ansible_collections.metal.gpu.tests.unit.support.observing import differences

    def run(programs, packages=(), repositories=()):
        node = node_info.Node(tmp_path, programs.run, programs.find)
        result = node_info.run(node, list(packages), list(repositories))
        assert result["changed"] is False
        observed = interpret(json.loads(json.dumps(result["raw"])))  # as it travels
        assert list(differences(observed, Node, "gpu_node")) == []
        return observed

    return run
