# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a file keeps when its content is replaced, and which files are not."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest

from metal_gpu.replace_file import replace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "file"
    file.write_text("old\n")
    return file


def _names(path: Path) -> list[str]:
    return sorted(one.name for one in path.parent.iterdir() if one.is_file())


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755])
def test_mode_stays(path: Path, mode: int) -> None:
    path.chmod(mode)
    replace(path, "new\n")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new\n", mode)
    assert _names(path) == ["file"]


def test_bytes_and_a_new_file(tmp_path: Path) -> None:
    replace(tmp_path / "file", b"\xff\n")
    assert (tmp_path / "file").read_bytes() == b"\xff\n"
    assert (tmp_path / "file").stat().st_mode & 0o777 in (0o644, 0o664, 0o640, 0o600)


def test_read_only_file_is_refused(path: Path) -> None:
    """Root could write it as well, and does not."""
    path.chmod(0o444)
    with pytest.raises(PermissionError, match="the file is read-only"):
        replace(path, "new\n")
    assert (path.read_text(), _names(path)) == ("old\n", ["file"])


def test_file_with_two_names_is_refused(path: Path) -> None:
    (path.parent / "other").hardlink_to(path)
    with pytest.raises(OSError, match=r"has 2 names \(hard links\)"):
        replace(path, "new\n")
    assert ((path.parent / "other").read_text(), _names(path)) == ("old\n", ["file", "other"])


class _Attributes:
    """Extended attributes of a file system that has them, by file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path, **inherited: bytes) -> None:
        self.of: dict[str, dict[str, bytes]] = {str(path): {}}
        self._inherited = inherited
        monkeypatch.setattr(os, "listxattr", lambda path: [*self._file(path)])
        monkeypatch.setattr(os, "getxattr", lambda path, name: self._file(path)[name])
        monkeypatch.setattr(os, "removexattr", lambda path, name: self._file(path).pop(name))
        monkeypatch.setattr(os, "setxattr", self._set)
        self.refused = ""

    def _file(self, path: Path) -> dict[str, bytes]:
        return self.of.setdefault(str(path), dict(self._inherited))

    def _set(self, path: Path, name: str, value: bytes) -> None:
        if name == self.refused:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        self._file(path)[name] = value

    def of_new(self, path: Path) -> dict[str, bytes]:
        return next(found for name, found in self.of.items() if name != str(path))


def test_attributes_are_copied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acl = "system.posix_acl_access"
    attributes = _Attributes(monkeypatch, path, **{acl: b"of the folder", "security.selinux": b"s"})
    attributes.of[str(path)] = {"security.selinux": b"s", "user.note": b"n", "security.ima": b"i"}
    attributes.refused = "security.selinux"  # it is the same already, so nobody sets it
    replace(path, "new\n")
    assert attributes.of_new(path) == {"security.selinux": b"s", "user.note": b"n"}


def test_attribute_that_cannot_be_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attributes = _Attributes(monkeypatch, path)
    attributes.of[str(path)] = {"security.selinux": b"s"}
    attributes.refused = "security.selinux"
    with pytest.raises(PermissionError) as refused:
        replace(path, "new\n")
    words = "its attribute security.selinux cannot be kept: Operation not permitted"
    assert refused.value.strerror == words
    assert (path.read_text(), _names(path)) == ("old\n", ["file"])


def test_attributes_of_this_file_system(path: Path) -> None:
    """Kept if it has them; otherwise there are none to keep."""
    wanted = {}
    with contextlib.suppress(OSError):
        os.setxattr(path, "user.metal_gpu", b"kept")
        wanted = {"user.metal_gpu": b"kept"}
    replace(path, "new\n")
    found = {name: os.getxattr(path, name) for name in wanted}
    assert (found, path.read_text()) == (wanted, "new\n")
