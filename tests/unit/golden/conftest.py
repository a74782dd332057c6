# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden texts anew")


@pytest.fixture
def is_update(request: pytest.FixtureRequest) -> bool:
    # Without the folder on the command line, pytest reads this file after it has read its options.
    return bool(request.config.getoption("--update-golden", default=False))
