# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `make dist` writes: the artifact, the wheel and the bill of materials, always the same."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.version import Version

import release_files
from artifact import Linked, read_paths
from release_files import copy_checkout, read_time

ROOT = Path(__file__).resolve().parents[2]
GALAXY = yaml.safe_load((ROOT / "galaxy.yml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HOME = "ansible_collections/metal/gpu/"
MODULES = {"pyyaml": "yaml", "ansible-core": "ansible"}  # by the name of the package
OURS = {"metal_gpu", "ansible_collections", "ansible_runner"}
BROUGHT = {"urllib3"}  # by kubernetes, which uses it for each request


def build(checkout: Path, folder: Path, umask: int) -> Path:
    command = [sys.executable, "scripts/release_files.py", str(folder)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(read_time())}
    subprocess.run(command, cwd=checkout, env=environment, umask=umask, check=True)
    return folder


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("first") / "dist", 0o022)


@pytest.fixture(scope="module")
def archive(dist: Path) -> dict[str, bytes]:
    return files_of(dist / f"metal-gpu-{GALAXY['version']}.tar.gz")


@pytest.fixture(scope="module")
def wheel(dist: Path) -> dict[str, bytes]:
    (path,) = dist.glob("*.whl")
    with zipfile.ZipFile(path) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


@pytest.fixture(scope="module")
def metadata(wheel: dict[str, bytes]) -> Message:
    (name,) = (name for name in wheel if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(wheel[name])


@pytest.fixture(scope="module")
def bill(dist: Path) -> dict[str, Any]:
    (path,) = dist.glob("*.cdx.json")
    content: dict[str, Any] = json.loads(path.read_bytes())
    return content


def files_of(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as opened:
        members = [member for member in opened.getmembers() if member.isfile()]
        return {one.name: opened.extractfile(one).read() for one in members}  # type: ignore[union-attr]


# --- the same bytes ------------------------------------------------------------------------------


def test_another_folder_umask_and_time_give_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    checkout = tmp_path / "another folder"
    checkout.mkdir(mode=0o700)
    copy_checkout(checkout)
    for number, path in enumerate(sorted(checkout.rglob("*"), reverse=True)):
        if not path.is_symlink():
            os.utime(path, (number, number))
        if path.is_file() and not path.is_symlink():
            path.chmod(0o700 if os.access(path, os.X_OK) else 0o600)
    for command in (["init", "--quiet"], ["add", "--all", "--force"]):
        subprocess.run(["git", *command], cwd=checkout, check=True)
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist/metal_gpu-0.9.0-py3-none-any.whl").write_text("an earlier build")
    second = build(checkout, tmp_path / "dist", 0o077)
    names = sorted(path.name for path in dist.iterdir())
    assert len(names) == 4
    assert names == sorted(path.name for path in second.iterdir())
    differing = [one for one in names if (dist / one).read_bytes() != (second / one).read_bytes()]
    assert differing == []


def test_checksums_are_of_every_file(dist: Path) -> None:
    lines = {}
    for line in (dist / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        lines[name] = digest
    others = [path for path in dist.iterdir() if path.name != "SHA256SUMS"]
    assert lines == {path.name: sha256(path.read_bytes()).hexdigest() for path in others}


def test_time_is_that_of_the_last_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    asked = ["git", "log", "-1", "--format=%ct"]
    printed = subprocess.run(asked, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert read_time() == int(printed)


# --- the collection in both ----------------------------------------------------------------------


def test_archive_is_what_ansible_galaxy_builds(archive: dict[str, bytes], tmp_path: Path) -> None:
    copy_checkout(checkout := tmp_path / "checkout")
    command = [sys.executable, "-m", "ansible", "galaxy", "collection", "build"]
    subprocess.run([*command, f"--output-path={tmp_path}"], cwd=checkout, check=True)
    (built,) = tmp_path.glob("*.tar.gz")
    theirs, ours = files_of(built), dict(archive)
    listings = [json.loads(files.pop("FILES.json"))["files"] for files in (theirs, ours)]
    assert sorted(listings[0], key=lambda one: one["name"]) == listings[1]
    manifests = [json.loads(files.pop("MANIFEST.json")) for files in (theirs, ours)]
    for manifest in manifests:
        del manifest["file_manifest_file"]["chksum_sha256"]  # of FILES.json in another order
    assert manifests[0] == manifests[1]
    assert theirs == ours


def test_wheel_carries_the_files_of_the_archive(
    wheel: dict[str, bytes], archive: dict[str, bytes]
) -> None:
    carried = {name.removeprefix(HOME): wheel[name] for name in wheel if name.startswith(HOME)}
    assert carried == archive


def test_wheel_has_only_the_collection_and_the_package(wheel: dict[str, bytes]) -> None:
    """A file `ansible_collections/__init__.py` would hide collections in other folders."""
    parts = {name.split("/")[0] for name in wheel if not name.startswith(HOME)}
    assert parts == {"metal_gpu", f"metal_gpu-{Version(GALAXY['version'])}.dist-info"}
    package = {
        f"metal_gpu/{path.relative_to(ROOT / 'src/metal_gpu').as_posix()}"
        for path in (ROOT / "src/metal_gpu").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert package == {name for name in wheel if name.startswith("metal_gpu/")}


def test_archive_has_no_part_of_the_wheel(archive: dict[str, bytes]) -> None:
    wheels = ("src/", "pyproject.toml", "metal_gpu/", "scripts/", "dist/", "site/")
    assert [name for name in archive if name.startswith(wheels)] == []


def test_symbolic_link_is_named(tmp_path: Path) -> None:
    (tmp_path / "galaxy.yml").write_text(
        "{namespace: a, name: b, version: 1.0.0, build_ignore: []}"
    )
    (tmp_path / "link").symlink_to("galaxy.yml")
    with pytest.raises(Linked, match="link is a symbolic link"):
        read_paths(tmp_path)


# --- version and requirements --------------------------------------------------------------------


def test_version_is_the_same_everywhere(
    metadata: Message, archive: dict[str, bytes], bill: dict[str, Any]
) -> None:
    version = Version(GALAXY["version"])
    assert Version(metadata["Version"]) == version
    assert json.loads(archive["MANIFEST.json"])["collection_info"]["version"] == GALAXY["version"]
    assert bill["metadata"]["component"]["version"] == str(version)
    changelog = yaml.safe_load((ROOT / "changelogs/changelog.yaml").read_text())
    assert GALAXY["version"] in changelog["releases"]


@pytest.mark.parametrize(
    ("galaxy", "python"),
    [
        ("1.0.0-dev", "1.0.0.dev0"),
        ("1.0.0-beta.2", "1.0.0b2"),
        ("1.0.0-rc.1", "1.0.0rc1"),
        ("1.2.3", "1.2.3"),
    ],
)
def test_versions_of_galaxy_as_python_has_them(galaxy: str, python: str) -> None:
    assert str(Version(galaxy)) == python


def test_extra_brings_the_collection_that_galaxy_would(metadata: Message) -> None:
    """The package `ansible` has kubernetes.core."""
    needed = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    extra = {one.name for one in needed if one.marker and one.marker.evaluate({"extra": "ansible"})}
    assert extra == {"ansible", "ansible-runner"}
    assert {*GALAXY["dependencies"]} == {"kubernetes.core"}


def test_same_client_of_kubernetes_with_and_without_the_wheel() -> None:
    lines = (ROOT / "meta/ee-requirements.txt").read_text().splitlines()
    asked = [line.partition("#")[0].strip() for line in lines if line and line[0] != "#"]
    assert {*asked} <= {*PROJECT["dependencies"]}


def test_requirements_are_what_the_package_and_its_library_import() -> None:
    """What only the playbooks need is for the extra."""
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")]
    imported = {name for path in sources for name in imports(ast.parse(path.read_bytes()))}
    others = imported - {*sys.stdlib_module_names, *OURS, *BROUGHT}
    assert others == {MODULES.get(one, one) for one in map(named, PROJECT["dependencies"])}


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def named(requirement: str) -> str:
    return Requirement(requirement).name


# --- the bill of materials -----------------------------------------------------------------------


def test_bill_is_valid(dist: Path) -> None:
    (path,) = dist.glob("*.cdx.json")
    error = JsonStrictValidator(SchemaVersion.V1_7).validate_str(path.read_text())
    assert error is None


def test_bill_has_each_requirement_of_the_wheel(bill: dict[str, Any], metadata: Message) -> None:
    needed = {Requirement(text).name for text in metadata.get_all("Requires-Dist", [])}
    listed = {one["name"] for one in bill["components"] if one["purl"].startswith("pkg:pypi/")}
    assert listed == needed


def test_bill_has_each_image_and_version_of_the_defaults(bill: dict[str, Any]) -> None:
    """A role with a new program needs a row in scripts/sbom.py."""
    listed = {f"{one['name']}:{one.get('version')}" for one in bill["components"]}
    versions = {str(one.get("version")) for one in bill["components"]}
    for path in ROOT.glob("roles/*/defaults/main.yml"):
        defaults = yaml.safe_load(path.read_text()) or {}
        for variable, value in defaults.items():
            if variable.endswith("_version") and value:
                assert str(value) in versions, variable
            if variable.endswith("_image") and ":" in value:
                assert value in listed, variable


def test_bill_names_the_digests_that_others_have_seen(bill: dict[str, Any]) -> None:
    record = yaml.safe_load((ROOT / "tests/recorded/images.yml").read_text())["rows"]
    images = {
        f"{one['name']}:{one['version']}": {row["name"]: row["value"] for row in one["properties"]}
        for one in bill["components"]
        if one["type"] == "container"
    }
    assert {*images} == {row["image"] for row in record}
    seen = {name: found.get("metal-gpu:seen-digest") for name, found in images.items()}
    assert seen == {row["image"]: row.get("digest") for row in record}
    support = (ROOT / "docs/support.md").read_text()
    assert all(
        f"{row['image'].rpartition(':')[2]}@{row['digest']}" in support
        for row in record
        if "digest" in row
    )


def test_a_file_that_git_does_not_know_is_not_released(tmp_path, monkeypatch):
    root = tmp_path / "checkout"
    root.mkdir()
    for name in ("galaxy.yml", "inventory.yml"):
        (root / name).write_text("x")
    for command in (["init", "--quiet"], ["add", "galaxy.yml"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    monkeypatch.setattr(release_files, "ROOT", root)
    copy_checkout(tmp_path / "copy")
    assert [one.name for one in (tmp_path / "copy").iterdir()] == ["galaxy.yml"]
