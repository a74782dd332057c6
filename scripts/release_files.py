# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes what a release consists of to a folder: `make dist`.

usage: .venv/bin/python scripts/release_files.py [FOLDER]

The Galaxy artifact, the wheel, a bill of materials of both, and checksums. All are made from a
copy of the files that git tracks or would track, with the time of the last commit. So the same
checkout gives the same bytes in another folder, at another time and with another umask. Other
releases of Python and of hatchling can compress differently.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.version import Version

from artifact import make_archive, read_galaxy

ROOT = Path(__file__).resolve().parent.parent

WHEEL = "metal_gpu-*.whl"
WRITTEN = (WHEEL, "metal-gpu-*.tar.gz", "metal-gpu-*.cdx.json", "SHA256SUMS")


def git(*arguments: str) -> str:
    """Return what git prints about the checkout."""
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def read_time() -> int:
    """Return the time that all files get, in seconds since 1970."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct"))


def copy_checkout(copy: Path) -> None:
    """Copy the files that git knows. Their modes do not depend on the umask.

    A file that nobody has added, such as an inventory with passwords, is never released.
    """
    for name in git("ls-files", "-z").split("\0"):
        source = ROOT / name
        if not name or not source.is_file():
            continue  # git lists files that were deleted but not committed
        (target := copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target, follow_symlinks=False)
        if not source.is_symlink():
            target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def build_wheel(copy: Path, folder: Path, time_s: int) -> Path:
    """Build the wheel with the hatchling of this environment, which no network is needed for."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time_s)}
    subprocess.run(
        [*command, "--directory", str(folder)],
        cwd=copy,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (wheel,) = folder.glob(WHEEL)
    return wheel


def build(folder: Path) -> list[Path]:
    """Write everything to the folder, and return the files."""
    time_s = read_time()
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (path for pattern in WRITTEN for path in folder.glob(pattern)):
        stale.unlink()
    with TemporaryDirectory(prefix="metal-gpu-dist-") as temporary:
        copy = Path(temporary, "ansible_collections", "metal", "gpu")
        copy_checkout(copy)
        galaxy = read_galaxy(copy)
        stem = f"{galaxy['namespace']}-{galaxy['name']}-{galaxy['version']}"
        (archive := folder / f"{stem}.tar.gz").write_bytes(make_archive(copy, time_s))
        wheel = build_wheel(copy, folder, time_s)
        sys.path.insert(0, temporary)
        import sbom  # imports the collection

        project = tomllib.loads((copy / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        version = str(Version(galaxy["version"]))
        bill = folder / f"{stem}.cdx.json"
        bill.write_bytes(sbom.make(copy, project, version, time_s))
    files = sorted([archive, wheel, bill])
    lines = [f"{sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in files]
    (sums := folder / "SHA256SUMS").write_text("".join(lines))
    for path in [*files, sums]:
        path.chmod(0o644)
    return [*files, sums]


def main() -> None:
    """Build, and print what was built."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve()
    for path in build(folder):
        print(f"{path.stat().st_size:>9} {path}")
    if git("status", "--porcelain"):
        print("dist: the checkout has changes that are not committed. Do not release this build.")


if __name__ == "__main__":
    main()
