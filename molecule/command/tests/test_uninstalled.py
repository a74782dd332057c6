# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`metal-gpu teardown` makes bare machines of GPU nodes again.

The file name makes pytest run it after all other tests of GPU nodes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def test_teardown_leaves_bare_nodes(
    laboratory: Any, gpu_nodes: Any, metal_gpu: Any, newcomer: Path
) -> None:
    done = metal_gpu("teardown", "--json", folder=newcomer)
    assert done.code == 0, done
    assert done.states == dict.fromkeys(laboratory.addresses, "ok")
    for node in laboratory.addresses:
        host = laboratory.host(node)
        assert "nvidia" not in host.check_output("lsmod")
        assert not host.file("/usr/bin/nvidia-smi").exists
    for node in laboratory.objects("nodes")["items"]:
        assert node["status"]["allocatable"].get("nvidia.com/gpu", "0") == "0"
        assert "unschedulable" not in node["spec"]
    found = metal_gpu("doctor", "--json", folder=newcomer)
    for host in json.loads(found.out)["hosts"]:
        assert host["steps"][0]["role"] == "nvidia_driver", host
