# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node whose engine lacks the runtime that a pod names: its words, the finding, the remedy."""

from __future__ import annotations

import json
import re
from typing import Any

import explained

SMOKE = json.dumps({"verify_smoke_runtime_class": "nvidia"})


def assert_named_and_mended(laboratory: Any, node: str, words: str) -> Any:
    """Assert that the finding has the engine's words and a remedy that works; return the run.

    `words` is a pattern. Afterwards, the engine has the runtime again.
    """
    verify = ("metal.gpu.verify", f"--limit={node}", "--extra-vars", SMOKE)
    run = laboratory.playbook(*verify)
    assert run.returncode != 0
    assert f"RUNTIME_HANDLER_MISSING {node}: the smoke pod needs the runtime nvidia" in run.words
    said = re.search(words, run.words)
    assert said
    assert explained.first(said[0]).code == "RUNTIME_HANDLER_MISSING"
    assert "`ansible-playbook metal.gpu.site --tags runtime`" in run.words
    remedy = laboratory.playbook("metal.gpu.site", "--tags=runtime", f"--limit={node}")
    assert remedy.returncode == 0
    assert laboratory.playbook(*verify).returncode == 0
    return run
