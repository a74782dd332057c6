# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of the collection, and the archive that `ansible-galaxy collection install` takes.

`ansible-galaxy collection build` writes the same archive, but in the order of the folder and with
the time of day in it. This module sorts the files and takes the time as an argument. A test
compares both. scripts/hatch_build.py puts the same files into the wheel.

Source: https://docs.ansible.com/projects/ansible/latest/dev_guide/collections_galaxy_meta.html
"""

from __future__ import annotations

import gzip
import io
import json
import stat
import tarfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import TypedDict

import yaml

FORMAT = 1
ALWAYS_IGNORED = ("MANIFEST.json", "FILES.json", "galaxy.yml", ".git", "*.pyc", "*.retry")
IGNORED_FOLDERS = {"CVS", ".bzr", ".hg", ".git", ".svn", "__pycache__", ".tox"}


class Galaxy(TypedDict):
    """The fields of galaxy.yml that are used here. MANIFEST.json has the others as they are."""

    namespace: str
    name: str
    version: str
    build_ignore: list[str]


class Linked(Exception):
    """A file of the collection is a symbolic link, which a wheel cannot hold."""


def read_galaxy(root: Path) -> Galaxy:
    """Return galaxy.yml of the checkout."""
    galaxy: Galaxy = yaml.safe_load((root / "galaxy.yml").read_text(encoding="utf-8"))
    return galaxy


def read_paths(root: Path) -> list[str]:
    """Return the files and folders of the collection by their path in it, sorted.

    A folder comes before what is in it.
    """
    galaxy = read_galaxy(root)
    archives = f"{galaxy['namespace']}-{galaxy['name']}-*.tar.gz"
    ignored = (*ALWAYS_IGNORED, archives, *galaxy["build_ignore"])

    def walk(folder: Path) -> Iterator[str]:
        for path in folder.iterdir():
            name = path.relative_to(root).as_posix()
            if any(fnmatchcase(name, pattern) for pattern in ignored):
                continue
            if path.is_symlink():
                raise Linked(
                    f"{path}: is a symbolic link, which a wheel cannot hold: copy the file"
                )
            if not path.is_dir():
                yield name
            elif path.name not in IGNORED_FOLDERS:
                yield name
                yield from walk(path)

    return sorted(walk(root))


def make_manifests(root: Path) -> dict[str, bytes]:
    """Return MANIFEST.json and FILES.json, from which Ansible knows version and checksums."""
    files = [_entry(".", None)]
    for name in read_paths(root):
        path = root / name
        files.append(_entry(name, None if path.is_dir() else path.read_bytes()))
    listing = _json({"files": files, "format": FORMAT})
    galaxy = dict(read_galaxy(root))
    fields = """namespace name version authors readme tags description license license_file
        dependencies repository documentation homepage issues"""
    manifest = {
        "collection_info": {field: galaxy.get(field) for field in fields.split()},
        "file_manifest_file": {
            "name": "FILES.json",
            "ftype": "file",
            "chksum_type": "sha256",
            "chksum_sha256": sha256(listing).hexdigest(),
            "format": FORMAT,
        },
        "format": FORMAT,
    }
    return {"MANIFEST.json": _json(manifest), "FILES.json": listing}


def make_archive(root: Path, time_s: int) -> bytes:
    """Return the archive. All of its members have the given time, and belong to root."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in make_manifests(root).items():
            _add(archive, name, data, 0o644, time_s)
        for name in read_paths(root):
            path = root / name
            if path.is_dir():
                _add(archive, name, None, 0o755, time_s)
            else:
                executable = path.stat().st_mode & stat.S_IXUSR
                _add(archive, name, path.read_bytes(), 0o755 if executable else 0o644, time_s)
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=time_s) as compressed:
        compressed.write(content.getvalue())
    return packed.getvalue()


def _add(archive: tarfile.TarFile, name: str, data: bytes | None, mode: int, time_s: int) -> None:
    member = tarfile.TarInfo(name)
    member.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
    member.size, member.mode, member.mtime = len(data or b""), mode, time_s
    archive.addfile(member, io.BytesIO(data or b""))


def _entry(name: str, data: bytes | None) -> dict[str, str | int | None]:
    """Return the row of a file in FILES.json, or of a folder, which has no data."""
    return {
        "name": name,
        "ftype": "dir" if data is None else "file",
        "chksum_type": None if data is None else "sha256",
        "chksum_sha256": None if data is None else sha256(data).hexdigest(),
        "format": FORMAT,
    }


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1).encode()
