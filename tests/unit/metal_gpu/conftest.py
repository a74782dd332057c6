# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest


@pytest.fixture
def api():
    """An empty cluster on the loopback."""
    # Not above: pytest may read this file before the collection can be imported.
    from ansible_collections.metal.gpu.tests.unit.support.api_server import ApiServer

    with ApiServer() as server:
        yield server
