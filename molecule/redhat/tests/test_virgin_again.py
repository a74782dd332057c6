# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nodes have no driver any more, and the repository does not have the one that they ask for.

The file name makes pytest run it after the teardown.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCKER = str(Path(__file__).parent.parent / "docker.yml")
DROPPED = "580.173.02"


@pytest.mark.parametrize(
    ("name", "options", "node", "release"),
    [
        # Within a stream, and with all packages of the repository.
        pytest.param("metal.gpu.site", ("--check",), "gpu-1", "el9", id="stream, check"),
        pytest.param("metal.gpu.site", (), "gpu-1", "el9", id="stream, run"),
        pytest.param(DOCKER, ("--check",), "gpu-2", "el10", id="check"),
        pytest.param(DOCKER, (), "gpu-2", "el10", id="run"),
    ],
)
def test_driver_that_the_repository_has_dropped(laboratory, name, options, node, release):
    """The versions of the branch come first, and nothing is installed."""
    version = ("-e", f"nvidia_driver_version={DROPPED}", "-e", f"metal_gpu_hosts={node}")
    run = laboratory.playbook(name, *version, *options)
    assert run.returncode != 0
    (missing, found) = re.search(
        rf"PACKAGE_VERSION_MISSING {node}: no enabled repository has (.*?); "
        r"available versions: (.*?) What to do",
        run.words,
    ).groups()
    assert "nvidia-driver-cuda" in missing
    assert missing.endswith(f"in version 3:{DROPPED}")
    versions = re.findall(rf"3:(\S+)-1[.]{release}", found)
    assert {*versions[:2]} == {"580.178.04", "580.999.01"}
    assert laboratory.host(node).check_output("rpm -qa '*nvidia*'") == ""
