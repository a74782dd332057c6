# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""CRI-O without the runtime that a pod's RuntimeClass names: its words, the finding, the remedy.

The name of this file makes pytest run it after test_crio.py, and before the teardown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import missing_runtime
import pytest

NODE = "gpu-2"
DROP_IN = "/etc/crio/crio.conf.d/99-metal-gpu.conf"
SMOKE_TIMEOUT = 300  # s, the default of verify_smoke_timeout
# As tests/recorded/crio.yml has them. The runtimes that CRI-O has follow, with their addresses.
WORDS = r"failed to find runtime handler nvidia from runtime list map\[\S+"


@pytest.fixture
def gone(laboratory: Any) -> Iterator[str]:
    """Somebody has deleted our drop-in, and CRI-O has started without it; yield its text."""
    host = laboratory.host(NODE)
    text = host.file(DROP_IN).content_string
    host.check_output("rm %s && systemctl reset-failed crio && systemctl restart crio", DROP_IN)
    yield str(text)
    # The test puts it back by the remedy. If it fails before, the tests after it need it.
    if not host.file(DROP_IN).exists:
        back = laboratory.playbook("metal.gpu.site", "--tags=runtime", f"--limit={NODE}")
        assert back.returncode == 0


def test_it_is_named_with_the_words_of_crio_and_its_remedy(laboratory, gone):
    run = missing_runtime.assert_named_and_mended(laboratory, NODE, WORDS)
    # An event has these words, and the pod itself waits.
    assert run.seconds < SMOKE_TIMEOUT
    assert laboratory.host(NODE).file(DROP_IN).content_string == gone
