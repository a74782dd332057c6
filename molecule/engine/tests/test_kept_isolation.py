# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who gets a GPU without a request from an admin's Docker below a kubelet: 26.1 and 20.10.

The name of this file makes pytest run it after test_kept_docker.py, which makes GPU nodes of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import leaks
import pytest

NAMES = {"gpu-2": "docker 26.1", "gpu-3": "docker 20.10"}
NODES = "--limit=gpu-2,gpu-3"


def compare(laboratory: Any, found: dict[str, dict[str, str]], setting: str) -> None:
    """Compare the results of both nodes with their rows of docs/isolation.md, or record them."""
    cases = {node: f"{name}, {setting}" for node, name in NAMES.items()}
    leaks.compare_nodes(laboratory, found, cases, {node: f"{NAMES[node]}." for node in NAMES})


def test_guard_keeps_gpus_from_containers_that_request_none(laboratory):
    run, found = leaks.run(laboratory, NODES)
    assert run.returncode == 0
    for attempts in found.values():
        assert {*attempts.values()} <= {"nothing", "refused", "by design"}
        assert all(attempts[name] == "nothing" for name in leaks.BY_IMAGE)
        assert attempts["pod_variable"] == "refused"
    compare(laboratory, found, "guard")


@pytest.fixture
def no_guard(laboratory: Any) -> Iterator[None]:
    leaks.site(laboratory, NODES, device_plugin_guard="none")
    yield
    leaks.site(laboratory, NODES)


def test_without_the_guard_they_get_gpus_and_the_finding_says_how(laboratory, no_guard):
    run, found = leaks.run(laboratory, NODES)
    assert run.returncode != 0
    for node, attempts in found.items():
        assert leaks.leaked(attempts) >= leaks.BY_IMAGE | {"pod_variable"}
        assert attempts["plain"] == "nothing"
        assert f"GPU_LEAKED {node}: containers that request no GPU see GPUs" in run.words
    assert "device_plugin_guard: enforce" in run.words
    compare(laboratory, found, "no guard")
