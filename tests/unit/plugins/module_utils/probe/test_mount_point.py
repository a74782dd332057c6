# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where something is mounted, nothing is looked at: a server that is gone would block it.

A regular file stands for such a mount. Whoever looks into it as a folder gets an error.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.probe.mount_point import read_obstacle
from ansible_collections.metal.gpu.plugins.module_utils.read.mounts import parse_mounts
from ansible_collections.metal.gpu.tests.unit.support.playbooks import ROOT

DISK = "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"


def mounted(path: Path, kind: str = "nfs4", source: str = "nas:/srv") -> str:
    return f"{DISK}30 22 0:41 / {path} rw shared:9 - {kind} {source} rw\n"


@pytest.mark.parametrize(
    ("kind", "source", "words"),
    [
        ("nfs4", "nas:/srv", ""),
        ("autofs", "systemd-1", ""),
        ("cifs", "//nas/x", "a file system of type cifs is mounted there"),
        (
            "fuse.curlftpfs",
            "ftp://u:canary@x/",
            "a file system of type fuse.curlftpfs is mounted there",
        ),
        ("tmpfs", "tmpfs", "a file system of type tmpfs is mounted there"),
    ],
)
def test_mount_point_is_not_looked_at(tmp_path: Path, kind: str, source: str, words: str) -> None:
    place = tmp_path / "data"
    place.touch()
    assert "Not a directory" in read_obstacle(str(place), parse_mounts(DISK))
    table = parse_mounts(mounted(place, kind, source))
    assert [read_obstacle(path, table) for path in (str(place), f"{place}/")] == [words] * 2


@pytest.mark.parametrize(
    ("kind", "source", "looks"),
    [
        ("nfs4", "nas:/srv", False),
        ("autofs", "/etc/auto.direct", False),
        ("fuse.sshfs", "nas:/srv", False),
        ("fuseblk", "/dev/sdc1", False),
        ("ceph", "mon:6789:/", False),
        ("ext4", "/dev/mapper/vg-data", True),
        ("zfs", "tank/data", True),
    ],
)
def test_nothing_below_another_host_is_looked_at(tmp_path: Path, kind, source, looks) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").touch()
    table = parse_mounts(mounted(tmp_path, kind, source))
    assert (read_obstacle(str(tmp_path / "data"), table) != "") is looks


def test_path_with_a_link(tmp_path: Path) -> None:
    """systemd mounts at no path with a link: also if the folder that is meant is empty."""
    (tmp_path / "real/data").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "loop").symlink_to("loop")
    table = parse_mounts(DISK)
    words = f"{tmp_path}/link is a link to {tmp_path}/real"
    assert read_obstacle(f"{tmp_path}/link", table).startswith(words)
    assert read_obstacle(f"{tmp_path}/link/data", table).startswith(words)
    assert read_obstacle(f"{tmp_path}/loop/none", table).startswith(f"{tmp_path}/loop is a link")
    assert read_obstacle(f"{tmp_path}/real/data", table) == ""


def test_the_question_at_the_end_of_a_run_looks_at_no_path() -> None:
    (task,) = yaml.safe_load((ROOT / "roles/nfs_mounts/tasks/report.yml").read_text())
    assert task["metal.gpu.nfs_export_info"]["look_at_paths"] is False
