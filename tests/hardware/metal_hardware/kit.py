# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build what a machine without network needs: pure Python packages, programs, a small root folder.

usage: python kit.py FILE.tar.xz      needs the laboratory's Go toolchain, gcc and pip
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.util import find_spec
from pathlib import Path

from metal_hardware import cuda
from metal_lab import programs

PACKAGES = ("jinja2", "markupsafe", "yaml")
PROGRAMS = {
    "containerd": ("containerd", "containerd-shim-runc-v2", "ctr"),
    "runc": ("runc",),
    "container-toolkit": ("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime"),
}
# What the driver's libraries need of the C library, and the program that CDI's hook runs.
LIBRARIES = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")


def build(folder: Path) -> None:
    for name in PACKAGES:
        spec = find_spec(name)
        assert spec
        assert spec.origin
        shutil.copytree(Path(spec.origin).parent, folder / "python" / name,
                        ignore=shutil.ignore_patterns("*.so", "__pycache__"))  # fmt: skip
    (folder / "bin").mkdir()
    for name, commands in PROGRAMS.items():
        built = programs.build(name)
        for command in commands:
            shutil.copy2(built / command, folder / "bin")
    _root(folder / "root")


def _root(root: Path) -> None:
    """Compose the root folder of the containers."""
    for name in ("bin", "dev", "etc", "lib64", "proc", "run", "sbin", "sys", "tmp", "usr/lib"):
        (root / name).mkdir(parents=True)
    ptx = cuda.PTX.replace("\n", "\\n")
    subprocess.run(
        ["gcc", "-O1", "-o", root / "bin/add", f'-DPTX="{ptx}"', f"-DSIZE={cuda.SIZE}",
         Path(__file__).parent / "add.c", "-ldl"], check=True)  # fmt: skip
    cache = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    for name in LIBRARIES:
        found = re.search(rf"\t{re.escape(name)} \(libc6,x86-64.*\) => (\S+)", cache)
        assert found, f"this machine has no {name}"
        shutil.copy(found[1], root / "usr/lib" / name)
    (root / "lib").symlink_to("usr/lib")
    shutil.copy("/lib64/ld-linux-x86-64.so.2", root / "lib64")
    shutil.copy("/sbin/ldconfig", root / "sbin")
    (root / "etc/ld.so.conf").write_text("/usr/lib\n/usr/lib64\n/usr/lib/x86_64-linux-gnu\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        build(Path(temporary))
        with tarfile.open(sys.argv[1], "w:xz") as archive:
            archive.add(temporary, ".")
