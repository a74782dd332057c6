# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Debian's own packages, as its archive has them.

The signature of the index and all checksums are checked, as debootstrap and apt do it.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from metal_lab import records
from metal_lab.cache import built, digest
from metal_lab.debs import Package

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
INDEX = "main/binary-amd64/Packages.xz"


@dataclass(frozen=True)
class DebianPackage(Package):
    """A package of Debian's archive. Its version is that of the day on which it is fetched."""

    suite: str = "bookworm"

    def build(self, folder: Path) -> Path:
        """Fetch the package into the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        release = _verified(_fetch(f"dists/{self.suite}/InRelease"))
        index = _fetch(f"dists/{self.suite}/{INDEX}", checksum_of(INDEX, release))
        path, checksum = entry_of(self.name, lzma.decompress(index).decode())
        deb = folder / path.rpartition("/")[2]
        deb.write_bytes(_fetch(path, checksum))
        return deb


def programs(suite: str, **paths: str) -> Path:
    """Return a folder with programs of Debian's packages. The first call fetches them.

    `paths` has the path of the program in each package.
    """

    def extract(out: Path) -> None:
        for name, path in paths.items():
            deb = DebianPackage(name, "", "", suite=suite).build(out)
            tree = subprocess.run(
                ["dpkg-deb", "--fsys-tarfile", deb], check=True, capture_output=True
            )
            program = subprocess.run(
                ["tar", "--extract", "--to-stdout", f".{path}"],
                check=True,
                input=tree.stdout,
                capture_output=True,
            )
            (out / name).write_bytes(program.stdout)
            deb.unlink()

    key = digest(suite, *(f"{name}{path}" for name, path in sorted(paths.items())))
    what = f"{' and '.join(paths)} of Debian's {suite}"
    return built(f"programs-{'-'.join(sorted(paths))}", key, what, extract)


def checksum_of(path: str, release: str) -> str:
    """Return the SHA-256 of a file that Release names."""
    checksums = release.partition("\nSHA256:\n")[2]
    match = re.search(rf"^ ([0-9a-f]{{64}}) +\d+ {re.escape(path)}$", checksums, re.MULTILINE)
    if not match:
        raise SystemExit(f"Debian's archive has no {path}")
    return match[1]


def entry_of(name: str, index: str) -> tuple[str, str]:
    """Return the path and the SHA-256 of a package."""
    start = f"\n{index}".find(f"\nPackage: {name}\n")
    if start < 0:
        raise SystemExit(f"Debian's archive has no package {name}")
    stanza = index[start:].partition("\n\n")[0]
    fields = dict(re.findall(r"^(Filename|SHA256): (\S+)$", stanza, re.MULTILINE))
    return fields["Filename"], fields["SHA256"]


def _fetch(path: str, checksum: str | None = None) -> bytes:
    mirror = os.environ.get("METAL_LAB_DEBIAN_MIRROR") or records.only("debian-12", "address")
    url = f"{mirror.rstrip('/')}/{path}"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            content: bytes = answer.read()
    except (urllib.error.URLError, OSError) as error:
        raise SystemExit(f"cannot fetch {url}: {error}") from error
    if checksum and hashlib.sha256(content).hexdigest() != checksum:
        raise SystemExit(f"{url} has another checksum than Debian's index")
    return content


def _verified(signed: bytes) -> str:
    """Return the text of InRelease without its signature. Exit if Debian did not sign it."""
    command = ["gpgv", "--quiet", f"--keyring={KEYRING}", "--output=-", "-"]
    result = subprocess.run(command, check=False, input=signed, capture_output=True)
    if result.returncode != 0:
        raise SystemExit(f"Debian's InRelease: {result.stderr.decode().strip()}")
    return result.stdout.decode()
