# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which modules does the next kernel lack?"""

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import signed_modules

RUNNING = "6.8.0-149-generic"
OPEN = "linux-modules-nvidia-580-server-open-"
HERE = [f"{OPEN}{RUNNING}", "linux-image-6.8.0-149-generic", "linux-image-generic"]


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        pytest.param(HERE, None, id="no other kernel"),
        pytest.param(
            [*HERE, "linux-image-6.8.0-151-generic"], f"{OPEN}6.8.0-151-generic", id="newer"
        ),
        pytest.param(
            [*HERE, "linux-image-unsigned-6.8.0-1051-generic"],
            f"{OPEN}6.8.0-1051-generic",
            id="numbers",
        ),
        pytest.param([*HERE, "linux-image-6.8.0-60-generic"], None, id="older"),
        pytest.param([*HERE, "linux-image-6.8.0-151-aws"], None, id="another flavour"),
        pytest.param(
            [*HERE, "linux-image-6.8.0-151-generic", f"{OPEN}6.8.0-151-generic"], None, id="there"
        ),
        pytest.param(
            [*HERE[1:], "linux-image-6.8.0-151-generic"], None, id="the running one has none"
        ),
    ],
)
def test_missing(installed: list[str], expected: str | None) -> None:
    assert signed_modules.missing(installed, RUNNING) == expected


@pytest.mark.parametrize("running", ["", "6.10.1", "5.14.0-570.12.1.el9_6.x86_64"])
def test_other_kernels(running: str) -> None:
    assert signed_modules.missing(HERE, running) is None
