# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `ansible-galaxy collection build` packs: all that a user needs, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A name that ends in a slash stands for everything below it.
FOR_USERS = (
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "FILES.json",
    "LICENSE",
    "LICENSES/",
    "MANIFEST.json",
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


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("artifact")
    build = [sys.executable, "-m", "ansible", "galaxy", "collection", "build"]
    subprocess.run([*build, f"--output-path={folder}"], cwd=ROOT, check=True, capture_output=True)
    (tarball,) = folder.glob("metal-gpu-*.tar.gz")
    with tarfile.open(tarball) as archive:
        return {member.name for member in archive.getmembers() if not member.isdir()}


def test_artifact_holds_nothing_for_developers(artifact: set[str]) -> None:
    assert {name for name in artifact if not name.startswith(FOR_USERS)} == set()


@pytest.mark.parametrize("folder", ["meta", "playbooks", "plugins", "roles", "inventories/example"])
def test_artifact_holds_what_a_user_needs(artifact: set[str], folder: str) -> None:
    wanted = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert wanted
    assert wanted <= artifact
