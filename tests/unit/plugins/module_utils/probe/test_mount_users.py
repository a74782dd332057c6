# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

from ansible_collections.metal.gpu.plugins.module_utils.probe.mount_users import read_mount_users
from ansible_collections.metal.gpu.tests.unit.plugins.module_utils.read.test_mounts import (
    HOST,
    SERVICE,
    container,
)
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant

IDENTITY = "1a2b3c4d5e6f" + "0" * 52
GROUP = f"0::/system.slice/docker-{IDENTITY}.scope\n"


def process(root: Path, number: int, namespace: int, table: str, group: str = "0::/\n") -> None:
    folder = f"/proc/{number}"
    texts = {"mountinfo": table, "comm": "python3\n", "cgroup": group, "cmdline": "x\0canary"}
    plant(root, {f"{folder}/{name}": text for name, text in texts.items()})
    (root / f"proc/{number}/ns").mkdir()
    (root / f"proc/{number}/ns/mnt").symlink_to(f"mnt:[{namespace}]")


def test_containers_are_named_once(tmp_path: Path) -> None:
    process(tmp_path, 1, 1, HOST)
    process(tmp_path, 20, 1, HOST)
    process(tmp_path, 30, 2, SERVICE)
    process(tmp_path, 400, 3, container("nas:/srv/data"), GROUP)
    process(tmp_path, 90, 3, container("nas:/srv/data"), GROUP)
    process(tmp_path, 500, 4, container("nas:/other"), GROUP)
    process(tmp_path, 600, 5, container("nas:/srv/data/sub"))
    (tmp_path / "proc/70").mkdir()  # it has just ended
    assert read_mount_users(tmp_path, ["/data", "/unused"]) == {
        "/data": [
            "python3 (process 90) of container 1a2b3c4d5e6f",
            "python3 (process 600)",
        ]
    }


def test_process_that_ends_does_not_hide_its_namespace(tmp_path: Path) -> None:
    process(tmp_path, 1, 1, HOST)
    process(tmp_path, 90, 3, "")
    (tmp_path / "proc/90/mountinfo").unlink()
    process(tmp_path, 91, 3, container("nas:/srv/data"))
    assert read_mount_users(tmp_path, ["/data"]) == {"/data": ["python3 (process 91)"]}


def test_what_is_unknown_is_no_proof(tmp_path: Path) -> None:
    """Only root may read it."""
    process(tmp_path, 1, 1, HOST)
    (tmp_path / "proc/1/mountinfo").unlink()
    (words,) = read_mount_users(tmp_path, ["/data"])["/data"]
    assert words.startswith("unknown processes (")
    assert "mountinfo" in words


def test_processes_are_not_read_if_nothing_is_mounted(tmp_path: Path) -> None:
    assert read_mount_users(tmp_path, ["/data"]) == {}
    process(tmp_path, 1, 1, HOST)
    process(tmp_path, 90, 3, container("nas:/srv/data"))
    assert read_mount_users(tmp_path, []) == {}
    assert read_mount_users(tmp_path, ["/other"]) == {}
