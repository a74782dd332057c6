# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.probe.device_files import (
    read_device_files,
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
