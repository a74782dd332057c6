# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The picture of README: what a terminal showed when the scenario `command` lost a GPU.

To record it anew: `RECORD_SCREEN=1 make molecule SCENARIO=command`. To draw it anew:
`python -m pytest tests/unit/golden --update-golden`
"""

from __future__ import annotations

import screenshot
from ansible_collections.metal.gpu.tests.unit.golden.nodes import ROOT

RECORD = ROOT / "tests/recorded/screen.txt"
PICTURE = ROOT / "docs/screen.svg"


def test_picture_is_that_of_the_record(is_update: bool) -> None:
    with RECORD.open(newline="") as record:
        picture = screenshot.picture(record.read(), "metal-gpu verify", "GPU_FAULTY")
    if is_update:
        PICTURE.write_text(picture)
    assert PICTURE.read_text() == picture
