# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest


@pytest.fixture
def machine(tmp_path, observe):
    """Return what makes a planted node with an engine."""
    # Not above: pytest may read this file before the collection can be imported.
    from ansible_collections.metal.gpu.tests.unit.support.registry_machine import Machine

    return lambda engine: Machine(tmp_path, observe, engine)
