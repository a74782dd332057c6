# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How debootstrap builds a real Ubuntu on a machine that may know nothing about it.

The key of the archive is in a package of the archive. The record has the checksum of that package,
so the key is the same whoever delivers it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from metal_lab.ubuntu import record

VARIABLE = "METAL_LAB_UBUNTU_MIRROR"
DEFAULT = "http://archive.ubuntu.com/ubuntu"
_KEYRING = "./usr/share/keyrings/ubuntu-archive-keyring.gpg"
# debootstrap of Debian 12 has no script for releases after 22.04. All of Ubuntu's have this one.
_SCRIPT = "/usr/share/debootstrap/scripts/gutsy"
_TIMEOUT_S = 60


def options(system: str, folder: Path) -> tuple[list[str], list[str]]:
    """Return the options of debootstrap, and its arguments after the folder of the system.

    The keyring is put into `folder`.
    """
    mirror = os.environ.get(VARIABLE, DEFAULT).rstrip("/")
    keyring = folder / "ubuntu-archive-keyring.gpg"
    keyring.write_bytes(_keyring(system, mirror, folder))
    base, *_others = record(system)["system"]["suites"]
    # Of several suites, debootstrap takes a package from the first one that has it.
    found = [f"--keyring={keyring}", "--components=main,universe", f"--extra-suites={base}"]
    return found, [mirror, _SCRIPT]


def suite(system: str) -> str:
    """Return the suite with the newest packages, in which others are looked for first."""
    _base, updates, _security = record(system)["system"]["suites"]
    return str(updates)


def _keyring(system: str, mirror: str, folder: Path) -> bytes:
    """Return the key of the archive. If the archive cannot be reached, exit with the reason."""
    package = record(system)["keyring"]
    url = f"{mirror}/{package['path']}"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            content: bytes = answer.read()
    except (urllib.error.URLError, OSError) as error:
        raise SystemExit(
            f"cannot read Ubuntu's archive, {url}: {error}\n"
            f"Set {VARIABLE} to the address of a mirror."
        ) from error
    if hashlib.sha256(content).hexdigest() != package["sha256"]:
        raise SystemExit(f"{url} is not the package with the checksum {package['sha256']}")
    deb = folder / "ubuntu-keyring.deb"
    deb.write_bytes(content)
    tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], check=True, capture_output=True)
    deb.unlink()
    return subprocess.run(
        ["tar", "-xO", _KEYRING], input=tar.stdout, check=True, capture_output=True
    ).stdout
