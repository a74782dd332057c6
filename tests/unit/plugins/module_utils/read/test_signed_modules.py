# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which modules does the next kernel lack?"""

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import signed_modules
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_driver import LoadedModule

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


BESIDE = [
    *HERE,
    "linux-image-6.8.0-151-generic",
    *(f"{signed_modules.MODULES}{one}-{RUNNING}" for one in ("535-server", "580-server", "580")),
]


@pytest.mark.parametrize(
    ("more", "loaded", "expected"),
    [
        pytest.param([], ("535.274.02", "proprietary"), "535-server", id="older"),
        pytest.param(
            ["nvidia-utils-580-server"],
            ("580.95.05", "proprietary"),
            "580-server",
            id="two of a branch",
        ),
        pytest.param([], ("580.95.05", "open"), "580-server-open", id="open"),
        pytest.param([], ("570.195.03", "open"), None, id="of none of them"),
        pytest.param(
            ["linux-modules-nvidia-535-server-6.8.0-151-generic"],
            ("580.95.05", "open"),
            "580-server-open",
            id="only another series is there",
        ),
        pytest.param(
            ["linux-modules-nvidia-580-server-6.8.0-151-generic"],
            ("580.95.05", "proprietary"),
            None,
            id="one of the branch is there",
        ),
        pytest.param([], None, "535-server", id="none is loaded, so the first by name"),
    ],
)
def test_series_of_another_driver_do_not_count(
    more: list[str], loaded: tuple[str, str] | None, expected: str | None
) -> None:
    module = LoadedModule(*loaded) if loaded else None
    found = signed_modules.missing([*BESIDE, *more], RUNNING, module)
    wanted = expected and f"linux-modules-nvidia-{expected}-6.8.0-151-generic"
    assert found == wanted


@pytest.mark.parametrize("running", ["", "6.10.1", "5.14.0-570.12.1.el9_6.x86_64"])
def test_other_kernels(running: str) -> None:
    assert signed_modules.missing(HERE, running) is None
