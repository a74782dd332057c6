# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""ansible-builder accepts execution-environment.yml, and finds what it names. No image is built."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEFINITION = ROOT / "execution-environment.yml"
GALAXY = yaml.safe_load((ROOT / "galaxy.yml").read_text())
ARCHIVE = f"metal-gpu-{GALAXY['version']}.tar.gz"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder from which an engine would build the image."""
    home = tmp_path_factory.mktemp("environment")
    (home / DEFINITION.name).write_text(DEFINITION.read_text())
    (home / "dist").mkdir()
    (home / "dist" / ARCHIVE).write_text("the artifact\n")
    builder = str(Path(sys.executable).with_name("ansible-builder"))
    command = [builder, "create", "--output-filename", "Containerfile"]
    created = subprocess.run(
        command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert created.returncode == 0, created.stdout
    return home / "context"


def test_image_starts_and_installs_as_the_definition_says(context: Path) -> None:
    recipe = (context / "Containerfile").read_text()
    assert 'ARG EE_BASE_IMAGE="quay.io/centos/centos:stream9"' in recipe
    assert 'ARG PYCMD="/usr/bin/python3.11"' in recipe
    assert "ansible-galaxy collection install" in recipe
    core = DEFINITION.read_text().split("package_pip: ")[1].split()[0]
    assert core in recipe


def test_archive_is_where_the_requirements_look_for_it(context: Path) -> None:
    requirements = yaml.safe_load((context / "_build/requirements.yml").read_text())
    (archive,) = [one for one in requirements["collections"] if one.get("type") == "file"]
    assert archive["name"] == f"metal/{ARCHIVE}"
    assert (context / "_build" / archive["name"]).read_text() == "the artifact\n"
    others = {one["name"]: one["version"] for one in requirements["collections"] if one != archive}
    assert others == GALAXY["dependencies"]


def test_requirements_of_the_collection_are_where_ansible_builder_looks_for_them() -> None:
    """It reads them in the image, from the installed collection."""
    introspect = [str(Path(sys.executable).with_name("ansible-builder")), "introspect"]
    found = subprocess.run([*introspect, str(ROOT)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    meta = yaml.safe_load((ROOT / "meta/execution-environment.yml").read_text())["dependencies"]
    assert all((ROOT / path).is_file() for path in meta.values())
    bindep = (ROOT / meta["system"]).read_text().splitlines()
    assert "openssh-clients [platform:rpm]" in bindep
