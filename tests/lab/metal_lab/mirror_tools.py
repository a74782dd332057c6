# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs that fill a mirror: Debian's own apt-mirror, skopeo and dnf, for this machine.

They are not installed: this machine may not have them, and must not change.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from pathlib import Path

from metal_lab import node_image
from metal_lab.cache import built, digest
from metal_lab.debian_archive import DebianPackage
from metal_lab.description import Description

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
# dnf needs 60 packages and a Python of its own. A node with this system and engine has them.
DNF_OF = ("rocky9", "containerd")
_WRAPPER = """\
#!/bin/sh
root=$(dirname "$(readlink -f "$0")")/../root
libraries=$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu
LD_LIBRARY_PATH=$libraries exec "$root/usr/bin/{name}" "$@"
"""
# dnf with the loader, the C library and the Python of its system. The folder that it takes for the
# root has its cache, its logs and its database. As root, it would write into those of this machine,
# as the plugin that is disabled does anyway.
_DNF = """\
#!/bin/sh
system=$(dirname "$(readlink -f "$0")")/../dnf
libraries=$system/usr/lib/x86_64-linux-gnu
mkdir -p "$HOME/.cache/dnf-root"
export PYTHONHOME="$system/usr" PYTHONDONTWRITEBYTECODE=1
exec "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" "$system/usr/bin/python3" \\
    "$system/usr/bin/dnf" --installroot="$HOME/.cache/dnf-root" \\
    --setopt=pluginpath="$system/usr/lib/python3/dist-packages/dnf-plugins" \\
    --disableplugin=generate_completion_cache "$@"
"""


def build(description: Description) -> Path:
    """Return a folder with `bin`, for PATH, and what its programs use.

    `root` has the content of their packages. Only a laboratory with nodes of Red Hat's family has
    dnf, and `dnf`, its system.
    """
    lacking = [name for name in NEEDS if not shutil.which(name)]
    if lacking:
        raise SystemExit(f"this machine lacks {', '.join(lacking)}, which filling a mirror needs")
    key = digest(SUITE, _WRAPPER, *PACKAGES)
    what = f"{' and '.join(COMMANDS)} of Debian's {SUITE}"
    if not description.redhat:
        return built("mirror-tools", key, what, _extract)
    system = node_image.base(*DNF_OF)
    key = digest(key, _DNF, system.name)
    return built("mirror-tools-dnf", key, f"dnf, {what}", partial(_extract_all, system))


def _extract(out: Path) -> None:
    root = out / "root"
    root.mkdir()
    for name in PACKAGES:
        deb = DebianPackage(name, "", "", suite=SUITE).build(out)
        subprocess.run(["dpkg-deb", "--extract", deb, root], check=True)
        deb.unlink()
    write_commands(out / "bin")


def _extract_all(system: Path, out: Path) -> None:
    _extract(out)
    write_dnf(system / "rootfs.tar", out)


def write_dnf(rootfs: Path, out: Path) -> None:
    """Extract the system of dnf, and write the command. It finds its system beside its folder."""
    system = out / "dnf"
    system.mkdir()
    options = [f"--directory={system}", "--exclude=./usr/share", f"--file={rootfs}"]
    subprocess.run(["tar", "--extract", *options, "./usr"], check=True)
    _write(out / "bin/dnf", _DNF)


def write_commands(folder: Path) -> None:
    """Write the commands. They find their libraries beside their folder."""
    folder.mkdir()
    for name in COMMANDS:
        _write(folder / name, _WRAPPER.format(name=name))


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
