# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""After the teardown, the nodes boot with nouveau, and a reboot is permitted.

The file name makes pytest run it after the teardown.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

NODES = ("gpu-1", "gpu-2")


def boots(laboratory: Any) -> dict[str, str]:
    """Return the boot id of each node."""
    path = "/proc/sys/kernel/random/boot_id"
    return {node: laboratory.host(node).file(path).content_string for node in NODES}


@pytest.fixture
def with_nouveau(laboratory: Any) -> None:
    for node in NODES:
        laboratory.lab("fault", node, "nouveau")


def test_node_is_drained_and_rebooted_unless_that_would_lose_a_pod(laboratory, with_nouveau):
    """gpu-1 has a pod that no controller would start elsewhere. gpu-2 has no such pod.

    The cordon of gpu-2 ends with the proof of its driver, and its mark goes, too.
    """
    before = boots(laboratory)
    run = laboratory.playbook("metal.gpu.site", "-e", "nvidia_driver_reboot_ok=true")
    assert run.returncode != 0
    assert re.search(r"REBOOT_UNDRAINED gpu-1: .*default/admin", run.words)
    assert re.search(r"gpu-2 .*?(\s+4){5}\s+4/4\s+ok\b", run.output)

    after = boots(laboratory)
    assert {node for node in NODES if after[node] != before[node]} == {"gpu-2"}
    nodes = laboratory.objects("nodes")["items"]
    assert [node["metadata"]["name"] for node in nodes if node["spec"].get("unschedulable")] == []
    marks = [node["metadata"]["annotations"] for node in nodes]
    assert [mark for mark in marks if "metal.gpu/cordoned" in mark] == []
    assert "NODE_CORDONED" not in run.words
    (work,) = laboratory.objects("pod", "admin")["status"]["containerStatuses"]
    assert (work["restartCount"], "running" in work["state"]) == (0, True)
