# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

from ansible_collections.metal.gpu.plugins.module_utils.probe.device_files import (
    read_device_files,
    read_obstacles,
)


def test_character_devices_only(tmp_path):
    # Making device files takes root; a link to one that everybody has does not.
    (tmp_path / "dev/nvidia-caps").mkdir(parents=True)
    for name in ("nvidia0", "nvidia-caps/nvidia-cap1"):
        (tmp_path / "dev" / name).symlink_to("/dev/null")
    (tmp_path / "dev/nvidia1").write_text("")
    (tmp_path / "dev/nvidia2").symlink_to("absent")
    (tmp_path / "dev/nvidia3").symlink_to("/dev/zero")
    (tmp_path / "dev/char").mkdir()
    (tmp_path / "dev/char/1:5").symlink_to("../nvidia3")
    assert [tuple(file.values()) for file in read_device_files(tmp_path)] == [
        ("/dev/nvidia-caps/nvidia-cap1", 1, 3, "0666", False),
        ("/dev/nvidia0", 1, 3, "0666", False),
        ("/dev/nvidia3", 1, 5, "0666", True),
    ]


def test_no_device_files(tmp_path):
    assert read_device_files(tmp_path) == []


def test_obstacles(tmp_path):
    """nvidia-caps is a directory, and CUDA needs nothing of nvidia-modeset."""
    for name in ("nvidia-caps", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools/data"):
        (tmp_path / "dev" / name).mkdir(parents=True)
    (tmp_path / "dev/nvidia0").symlink_to("/dev/null")
    (tmp_path / "dev/nvidia1").write_text("")
    (tmp_path / "dev/nvidia2").symlink_to("absent")
    (tmp_path / "dev/nvidia3").symlink_to("nvidia-caps")
    (tmp_path / "dev/nvidia4").symlink_to("n" * 300)
    (tmp_path / "dev/nvidia5").symlink_to("nvidia5")
    os.mkfifo(tmp_path / "dev/nvidiactl")
    assert [tuple(one.values()) for one in read_obstacles(tmp_path)] == [
        ("/dev/nvidia-uvm", "directory"),
        ("/dev/nvidia-uvm-tools", "directory"),
        ("/dev/nvidia1", "file"),
        ("/dev/nvidia2", "link"),
        ("/dev/nvidia3", "link"),
        ("/dev/nvidia4", "link"),
        ("/dev/nvidia5", "link"),
        ("/dev/nvidiactl", "other"),
    ]


def test_no_obstacles(tmp_path):
    assert read_obstacles(tmp_path) == []
