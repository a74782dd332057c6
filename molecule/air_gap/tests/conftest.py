# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scenario has four nodes."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["gpu-1", "gpu-2", "gpu-3", "gpu-4"])
def node(request: pytest.FixtureRequest) -> str:
    return str(request.param)
