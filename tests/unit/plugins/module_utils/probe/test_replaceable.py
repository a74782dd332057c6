# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is in the way of replacing a file. Flags of file systems and mounts need root and a file
system of its own, so the answers of the kernel are given here; tried by hand with chattr, with
`mount --bind` and with `mount -o ro` on Linux 6.1 (ext4, tmpfs), 2026-11-22."""

from __future__ import annotations

import os
import struct
from types import SimpleNamespace

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe import replaceable

# Form and origin: lines of /proc/self/mountinfo of a machine with `mount --bind`, Linux 6.1.
MOUNTS = """\
25 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
69 25 254:0 /srv/daemon.json {path} rw,relatime shared:1 - ext4 /dev/vda rw,discard
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "daemon.json"
    path.write_text("{}")
    return path


def test_no_obstacle(path, tmp_path):
    assert replaceable.find_obstacle(str(path)) is None
    assert replaceable.find_obstacle(str(tmp_path / "new/directory/file")) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.mkdir(), "{path} is a directory, not a file. Move it away"),
        (os.mkfifo, "{path} is not a regular file. Move it away"),
        (
            lambda path: (path.touch(), path.with_name("b").hardlink_to(path)),
            "{path} has 2 hard links, and the other names would keep the old content. Separate "
            "it with `cp -p {path} {path}.new && mv {path}.new {path}`",
        ),
        (
            lambda path: path.parent.rmdir() or path.parent.touch(),
            "{path.parent} is not a directory. Move it away",
        ),
    ],
    ids=["directory", "pipe", "hard-link", "no-directory"],
)
def test_obstacles_at_the_path(tmp_path, make, message):
    path = tmp_path / "etc" / "daemon.json"
    path.parent.mkdir()
    make(path)
    assert replaceable.find_obstacle(str(path)) == message.format(path=path)


@pytest.mark.parametrize("name", ["daemon.json", "a b"], ids=["plain", "with-a-blank"])
def test_a_mounted_file(tmp_path, name):
    path, mounts = tmp_path / name, tmp_path / "mountinfo"
    path.touch()
    mounts.write_text(MOUNTS.format(path=str(path).replace(" ", "\\040")))
    found = replaceable.find_obstacle(str(path), str(mounts))
    assert found.startswith(f"{path} is a mount point, and a mounted file cannot be replaced. ")
    assert ("umount '" in found) is (" " in name)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (0x80010, "is immutable. Allow changes with `chattr -i {}`"),
        (0x80020, "is append-only. Allow changes with `chattr -a {}`"),
        (0x80000, None),
        (None, None),
    ],
    ids=["immutable", "append-only", "extents", "no-flags"],
)
@pytest.mark.parametrize("which", ["file", "directory"])
def test_flags(path, monkeypatch, flags, words, which):
    name = path if which == "file" else path.parent

    def ioctl(descriptor, request, data):
        assert (request, len(data)) == (0x80086601, 8)
        if flags is None:
            raise OSError
        is_it = os.path.samestat(os.fstat(descriptor), os.stat(name))
        return struct.pack("q", flags if is_it else 0x80000)

    monkeypatch.setattr(replaceable.fcntl, "ioctl", ioctl)
    expected = words and f"{name} {words.format(name)}"
    assert replaceable.find_obstacle(str(path)) == expected


def test_a_read_only_file_system(path, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_flag=os.ST_RDONLY))
    assert replaceable.find_obstacle(str(path)) == (
        f"{path.parent} is on a read-only file system. Remount it with "
        f'`mount -o remount,rw "$(stat -c %m {path.parent})"`'
    )


def test_a_user_who_may_not_write(path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    assert replaceable.find_obstacle(str(path)) == (
        f"this user cannot write to {path.parent}. Run the task as root, with become: true"
    )
