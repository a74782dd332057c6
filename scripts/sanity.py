# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs `ansible-test sanity` with the ansible-core of the Python that runs this file.

usage: .venv/bin/python scripts/sanity.py [--test NAME ...]

This script works around three properties of ansible-test:

- It needs a physical directory ansible_collections/metal/gpu, and lists the files of a surrounding
  git repository. So it gets a copy of the files that git tracks or would track, elsewhere.
- It downloads get-pip.py. If only a package index is reachable, a stand-in in its cache in the home
  folder replaces the download.
- It hides pip's environment variables from pip. So it gets a separate home folder with a file of
  pip's settings.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from ansible.release import __version__ as core_version
from ansible_test._internal.python_requirements import get_venv_packages

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "metal-gpu"

GET_PIP = """\
import ensurepip
import os
import runpy
import sys


def main():
    wanted = [argument for argument in sys.argv[1:] if argument.startswith("pip==")]
    ensurepip.bootstrap(upgrade=True, default_pip=True)
    del os.environ["PIP_CONFIG_FILE"]  # ensurepip has pip ignore its settings
    sys.argv = ["pip", "install", "--disable-pip-version-check", "-q", *wanted]
    runpy.run_module("pip", run_name="__main__")


if __name__ == "__main__":
    main()
"""


class _Python:
    """The part of ansible-test's PythonConfig that is needed here."""

    version = f"{sys.version_info.major}.{sys.version_info.minor}"


def copy_checkout(copy: Path) -> None:
    """Copy the files that git does not ignore, without those that only serve development.

    `make lint` checks those. ansible-test reads tests/config.yml.
    """
    others = (".github", "conftest.py", "mkdocs.yml", "molecule", "scripts", "src", "tests")
    developing = [f":!{name}" for name in others]
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *developing],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    for name in filter(None, ["tests/config.yml", *listing.stdout.split("\0")]):
        if (source := ROOT / name).exists():  # git lists files that were deleted but not committed
            (target := copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def pip_settings() -> str:
    """Return all settings of this user's pip as one file."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    settings = re.findall(r"^(?:global|:env:)\.([\w-]+)='(.*)'$", listing.stdout, re.MULTILINE)
    return "\n".join(["[global]", *(f"{key} = {value}" for key, value in dict(settings).items())])


def make_home(home: Path) -> None:
    """Write the home folder. ansible-test's caches in it serve the next run."""
    pip_version = get_venv_packages(_Python)["pip"].replace(".", "_")
    for path, content in {
        home / ".config" / "pip" / "pip.conf": pip_settings(),
        home / ".ansible" / "test" / "cache" / f"get_pip_{pip_version}.py": GET_PIP,
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def main() -> int:
    """Return the exit status of ansible-test."""
    home = CACHE / "ansible-test"
    make_home(home)
    ansible_test = Path(sys.executable).with_name("ansible-test")
    command = [ansible_test, "sanity", "--python", _Python.version, "--requirements"]
    environment = {**os.environ, "HOME": str(home), "LC_ALL": "C.UTF-8"}
    with TemporaryDirectory(prefix="metal-gpu-sanity-") as tree:
        copy = Path(tree, "ansible_collections", "metal", "gpu")
        copy_checkout(copy)
        status = subprocess.call([*command, *sys.argv[1:]], cwd=copy, env=environment)
    print(f"sanity: {'FAILED' if status else 'clean'} on ansible-core {core_version}")
    return status


if __name__ == "__main__":
    sys.exit(main())
