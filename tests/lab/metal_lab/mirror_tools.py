# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs that fill a mirror: Debian's own apt-mirror and skopeo, for this machine.

They are not installed: this machine may not have them, and must not change.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from pathlib import Path

from metal_lab.cache import built, digest
from metal_lab.debian_archive import DebianPackage

SUITE = "bookworm"
# skopeo with the libraries that an installation without desktop lacks, and its configuration.
PACKAGES = (
    "apt-mirror",
    "skopeo",
    "golang-github-containers-common",
    "libassuan0",
    "libdevmapper1.02.1",
    "libgpg-error0",
    "libgpgme11",
)
COMMANDS = ("apt-mirror", "skopeo")
NEEDS = ("curl", "gpg", "perl", "wget", "xz")  # of this machine: for the commands, and beside them
_WRAPPER = """\
#!/bin/sh
root=$(dirname "$(readlink -f "$0")")/../root
libraries=$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu
LD_LIBRARY_PATH=$libraries exec "$root/usr/bin/{name}" "$@"
"""


def build() -> Path:
    """Return a folder with `bin`, for PATH, and `root`, the content of the packages."""
    lacking = [name for name in NEEDS if not shutil.which(name)]
    if lacking:
        raise SystemExit(f"this machine lacks {', '.join(lacking)}, which filling a mirror needs")
    key = digest(SUITE, _WRAPPER, *PACKAGES)
    what = f"{' and '.join(COMMANDS)} of Debian's {SUITE}"
    return built("mirror-tools", key, what, partial(_extract, PACKAGES))


def _extract(packages: tuple[str, ...], out: Path) -> None:
    root, commands = out / "root", out / "bin"
    root.mkdir()
    for name in packages:
        deb = DebianPackage(name, "", "", suite=SUITE).build(out)
        subprocess.run(["dpkg-deb", "--extract", deb, root], check=True)
        deb.unlink()
    write_commands(commands)


def write_commands(folder: Path) -> None:
    """Write the commands. They find their libraries beside their folder."""
    folder.mkdir()
    for name in COMMANDS:
        path = folder / name
        path.write_text(_WRAPPER.format(name=name))
        path.chmod(0o755)
