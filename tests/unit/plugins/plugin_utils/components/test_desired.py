# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import for_node

BOOKWORM = {"os": {"id": "debian", "version_id": "12", "codename": "bookworm"}}
SID = {"os": {"id": "debian", "version_id": None, "codename": "sid"}}


@pytest.mark.parametrize(
    ("text", "node", "filled"),
    [
        pytest.param("cuda/{id}{version_id}/", BOOKWORM, "cuda/debian12/", id="nvidia"),
        pytest.param("{codename}", BOOKWORM, "bookworm", id="suite"),
        pytest.param("https://mirror.example/a", BOOKWORM, "https://mirror.example/a", id="none"),
        pytest.param("{id}{version_id}", SID, "debian", id="without-version"),
    ],
)
def test_for_node(text, node, filled):
    assert for_node(text, node) == filled
