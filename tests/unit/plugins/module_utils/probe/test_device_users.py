# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.probe.device_users import (
    parse_pod,
    read_device_users,
)

ROOT = Path(__file__).parents[5]
RECORDED = yaml.safe_load((ROOT / "tests/recorded/device_files.yml").read_text())["holders"]
UID = "3f1f3a52-9d0b-4a0e-8a55-0e6a9b1f4c21"


@pytest.mark.parametrize(
    ("cgroup", "pod"),
    [
        pytest.param(f"0::/kubepods/besteffort/pod{UID}/1a2b\n", UID, id="cgroupfs"),
        pytest.param(
            f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-1a.scope\n",
            UID,
            id="systemd",
        ),
        pytest.param("0::/system.slice/nvidia-persistenced.service\n", None, id="service"),
    ],
)
def test_pod(cgroup, pod):
    assert parse_pod(cgroup) == pod


@pytest.fixture
def process(tmp_path):
    def plant(pid, command, *, opens=(), maps="", cgroup="0::/system.slice/x.service\n"):
        folder = tmp_path / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True)
        for number, target in enumerate(opens):
            (folder / "fd" / str(number)).symlink_to(target)
        for name, text in (("comm", f"{command}\n"), ("maps", maps), ("cgroup", cgroup)):
            (folder / name).write_text(text)

    return plant


def test_who_has_a_device_open_or_a_library_mapped(process, tmp_path):
    process(10, "python3", opens=["/dev/null", "/dev/nvidiactl"], cgroup=f"0::/pod{UID}\n")
    process(9, "plugin", maps="7f00 r-xp /usr/lib/libnvidia-ml.so.580.178.04\n")
    process(8, "sshd", opens=["/dev/null"], maps="7f00 r-xp /usr/lib/libc.so.6\n")
    assert read_device_users(tmp_path) == [
        {"pid": 9, "command": "plugin", "pod": None, "computes": False},
        {"pid": 10, "command": "python3", "pod": UID, "computes": False},
    ]


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row["does"])
def test_who_computes(process, tmp_path, row):
    process(7, row["process"], opens=row["files"])
    assert [user["computes"] for user in read_device_users(tmp_path)] == [row["computes"]]


def test_a_process_that_ends_meanwhile_is_left_out(tmp_path):
    (tmp_path / "proc/7").mkdir(parents=True)
    assert read_device_users(tmp_path) == []
