# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who compares an image with the driver, on a Docker host."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read.image_runtime import (
    GPUS,
    RUNTIME,
    Host,
    compares,
)

FACTS = yaml.safe_load((Path(__file__).parents[4] / "recorded/image_needs.yml").read_text())
FACTS = {name: one["value"] for name, one in FACTS["requirements"].items()}
TOOLKIT = FACTS["runtime_by_cdi"]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        pytest.param(Host(GPUS, False, TOOLKIT), True, id="--gpus by the hook"),
        pytest.param(Host(GPUS, True, TOOLKIT), False, id="--gpus by CDI"),
        pytest.param(
            Host(GPUS, False, TOOLKIT, is_disabled=True), False, id="the configuration forbids it"
        ),
        pytest.param(Host(RUNTIME, False, TOOLKIT), False, id="the runtime, by jit-cdi"),
        pytest.param(Host(RUNTIME, True, "1.17.8"), True, id="an older runtime"),
        pytest.param(Host(RUNTIME, True, "1.17.8", "auto"), True, id="it decides"),
        pytest.param(
            Host(RUNTIME, True, "1.17.8", "auto", is_disabled=True), False,
            id="it decides, and the configuration forbids it",
        ),
        pytest.param(Host(RUNTIME, True, "1.17.8", "cdi"), False, id="the admin wants CDI"),
        *(
            pytest.param(Host(RUNTIME, True, TOOLKIT, mode), True, id=f"the admin wants {mode}")
            for mode in FACTS["modes"]
        ),
        pytest.param(
            Host(RUNTIME, True, TOOLKIT, "legacy", is_disabled=True), False,
            id="the configuration forbids it in legacy mode",
        ),
        pytest.param(
            Host(RUNTIME, True, TOOLKIT, "csv", is_disabled=True), True,
            id="the mode of Tegra does not read it",
        ),
    ],
)  # fmt: skip
def test_who_compares(host: Host, expected: bool) -> None:
    assert compares(host) is expected
