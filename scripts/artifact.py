# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of the collection, and the archive that `ansible-galaxy collection install` takes.

usage: .venv/bin/python scripts/artifact.py    # writes build_ignore in galaxy.yml, from KEPT

`ansible-galaxy collection build` writes the same archive, but in the order of the folder and with
the time of day in it. This module sorts the files and takes the time as an argument. A test
compares both. scripts/hatch_build.py puts the same files into the wheel.

A checkout can also have a virtual environment, an inventory, keys and passwords. So KEPT lists what
is packed, and everything else is left out. galaxy.yml can list only what is left out: build_ignore
has the patterns of every other name. (`manifest` there could list what is packed, but
`ansible-galaxy collection build` then needs distlib, which ansible-core does not bring.)

Below the folders of KEPT, a file that is not of the project is known only from git: what git does
not track never gets into the wheel. `ansible-galaxy collection build` does not ask git, and a
downloaded archive has none. There, only STRAY keeps such a file out.

Source: https://docs.ansible.com/projects/ansible/latest/dev_guide/collections_galaxy_meta.html
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import stat
import subprocess
import tarfile
import textwrap
from collections.abc import Iterator
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TypedDict

import yaml

FORMAT = 1
ALWAYS_IGNORED = ("MANIFEST.json", "FILES.json", "galaxy.yml", ".git", "*.pyc", "*.retry")
IGNORED_FOLDERS = {"CVS", ".bzr", ".hg", ".git", ".svn", "__pycache__", ".tox"}

# What users need. A name that ends in a slash stands for everything below it.
KEPT = (
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "LICENSES/",
    "README.md",
    "SECURITY.md",
    "changelogs/changelog.yaml",
    "docs/",
    "inventories/example/",
    "meta/",
    "playbooks/",
    "plugins/",
    "roles/",
)
# What is left out below the folders of KEPT: hidden files, copies that editors make, and what
# Ansible reads from beside a playbook.
STRAY = (
    "*/.*",
    "*~",
    "playbooks/group_vars",
    "playbooks/host_vars",
    "playbooks/hosts*",
    "playbooks/inventor*",
)
# Variables that turn git to another repository. A hook of git has them.
ELSEWHERE = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"),
}
# In a container, a checkout of the host belongs to another user, and git refuses it. Who builds it
# runs its code anyway. Source: git-config(1), safe.directory: git takes it from the command line.
LIST = ("git", "-c", "safe.directory=*", "ls-files", "-z")


class Galaxy(TypedDict):
    """The fields of galaxy.yml that are used here. MANIFEST.json has the others as they are."""

    namespace: str
    name: str
    version: str
    build_ignore: list[str]


class Linked(Exception):
    """A file of the collection is a symbolic link, which a wheel cannot hold."""


def make_patterns() -> list[str]:
    """Return the patterns of all names that KEPT does not have, as build_ignore takes them.

    fnmatch has no "all but", so each pattern is where a name leaves those of KEPT: `docs` gives
    `d`, `d[!o]*`, `do`, `do[!c]*`, `doc`, `doc[!s]*` and `docs[!/]*`.
    """
    kept = {name.removesuffix("/") for name in KEPT}
    names = kept | {parent for name in kept for parent in _parents(name)}
    nexts: dict[str, set[str]] = {}
    for name in names:
        for end in range(len(name)):
            nexts.setdefault(name[:end], set()).add(name[end])
    for name in KEPT:
        nexts.setdefault(name.removesuffix("/"), set()).update("/" if name.endswith("/") else "")

    patterns = []
    for start, following in sorted(nexts.items()):
        if start and not start.endswith("/") and start not in names:
            patterns.append(start)
        patterns.append(f"{start}[!{''.join(sorted(following))}]*" if following else f"{start}?*")
    return [*patterns, *STRAY]


def write_patterns(root: Path) -> None:
    """Write the patterns to build_ignore, which is the last key of galaxy.yml."""
    path = root / "galaxy.yml"
    quoted = ", ".join(f'"{pattern}"' for pattern in make_patterns())
    lines = textwrap.fill(quoted, 100, break_long_words=False, break_on_hyphens=False)
    block = f"build_ignore: [\n{textwrap.indent(lines, '  ')}\n]\n"
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r"^build_ignore:.*", lambda _: block, text, flags=re.M | re.S), "utf-8")


def read_galaxy(root: Path) -> Galaxy:
    """Return galaxy.yml of the checkout."""
    galaxy: Galaxy = yaml.safe_load((root / "galaxy.yml").read_text(encoding="utf-8"))
    return galaxy


def read_paths(root: Path) -> list[str]:
    """Return the files and folders of the collection by their path in it, sorted.

    A folder comes before what is in it. If git tracks the files of the checkout, no other file is
    among them.

    Raises Linked.
    """
    galaxy = read_galaxy(root)
    archives = f"{galaxy['namespace']}-{galaxy['name']}-*.tar.gz"
    ignored = (*ALWAYS_IGNORED, archives, *galaxy["build_ignore"])
    tracked = _read_tracked(root)

    def walk(folder: Path) -> Iterator[str]:
        for path in folder.iterdir():
            name = path.relative_to(root).as_posix()
            if tracked is not None and name not in tracked:
                continue
            if any(fnmatchcase(name, pattern) for pattern in ignored):
                continue
            if path.is_symlink():
                raise Linked(
                    f"{path} is a symbolic link, which a wheel cannot hold. "
                    "Remove it, or put a copy of its target in its place."
                )
            if not path.is_dir():
                yield name
            elif path.name not in IGNORED_FOLDERS:
                yield name
                yield from walk(path)

    return sorted(walk(root))


def _read_tracked(root: Path) -> set[str] | None:
    """Return the files that git tracks, and their folders.

    None means that git does not know: the folder is no checkout, git is missing, one before 2.38
    refuses the folder of another user, or nobody has added the files.
    """
    if not (root / ".git").exists():
        return None
    environment = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    try:
        listed = subprocess.run(LIST, cwd=root, env=environment, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    files = {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}
    if "galaxy.yml" not in files:
        return None
    return files | {parent for name in files for parent in _parents(name)}


def _parents(name: str) -> list[str]:
    """Return the folders of a name, without the root."""
    return [parent.as_posix() for parent in PurePosixPath(name).parents if parent.name]


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


if __name__ == "__main__":
    write_patterns(Path(__file__).resolve().parent.parent)
