# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe.runfile import read_installer
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant

LIST = "/var/lib/nvidia/log"
DESCRIPTION = "NVIDIA Accelerated Graphics Driver for Linux-x86_64"


@pytest.mark.parametrize(
    ("first", "version"),
    [
        ("1.0-58017804 (580.178.04)", "580.178.04"),
        ("1.0-39025 (390.25)", "390.25"),
        ("580.178.04", None),
        ("", None),
    ],
)
def test_version_that_the_installer_wrote(tmp_path: Path, first: str, version: str | None) -> None:
    """The form is that of create_backwards_compatible_version_string in nvidia-installer."""
    plant(tmp_path, {LIST: f"{first}\n{DESCRIPTION}\n0: /usr/bin/nvidia-smi\n"})
    found = read_installer(tmp_path)
    assert (found["version"], found["uninstaller"]) == (version, False)


def test_node_without_anything(tmp_path: Path) -> None:
    assert read_installer(tmp_path) == {
        "version": None,
        "uninstaller": False,
        "free_mib": None,
        "runs_programs": None,
        "displays": [],
        "stops": False,
    }


def test_space_uninstaller_and_displays(tmp_path: Path) -> None:
    """A lock without its process is left from a server that died."""
    plant(
        tmp_path,
        {
            "/usr/bin/nvidia-uninstall": "",
            "/usr/lib/nvidia/alternate-install-present": "Use the packages.",
            "/var/lib/x": "",
            "/tmp/.X0-lock": "       812\n",
            "/tmp/.X1-lock": "       813\n",
            "/tmp/.X2-lock": "",
            "/proc/812/comm": "Xorg\n",
        },
    )
    found = read_installer(tmp_path)
    assert (found["uninstaller"], found["stops"]) == (True, True)
    assert isinstance(found["free_mib"], int)
    assert isinstance(found["runs_programs"], bool)
    assert found["displays"] == [":0"]
