# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Galaxy artifact and the wheel hold all that a user needs, and nothing else.

A user builds both in a checkout that also has a virtual environment, an inventory and keys.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from artifact import KEPT, make_patterns, read_galaxy, read_paths, write_patterns
from release_files import copy_checkout

ROOT = Path(__file__).resolve().parents[2]
HOME = "ansible_collections/metal/gpu/"

# What the files of the project are for. A name that ends in a slash stands for everything below it.
FOR_USERS = (
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "LICENSES/",
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
FOR_DEVELOPERS = (
    ".ansible-lint",
    ".ci/",
    ".config/",
    ".github/",
    ".gitignore",
    ".yamllint",
    "Makefile",
    "REUSE.toml",
    "changelogs/config.yaml",
    "changelogs/fragments/",
    "conftest.py",
    "execution-environment.yml",
    "galaxy.yml",
    "mkdocs.yml",
    "molecule/",
    "pyproject.toml",
    "requirements-",
    "requirements.txt",
    "scripts/",
    "src/",
    "tests/",
)
MANIFESTS = {"FILES.json", "MANIFEST.json"}

# Files of a user, which no pattern may let through. `python -m venv` makes the link lib64.
OWN_FOLDERS = ("venv", "env", ".nv", ".venv", "group_vars", "doc", "docs.old", "inventories/ours")
OWN_FILES = (
    "inventory.yml",
    "inventories/hosts.yml",
    "inv",
    "id_ed25519",
    "id_ed25519.pub",
    "kubeconfig",
    "passwords.yml",
    "metal.yml",
    "roles.txt",
    "README.md~",
    "README",
    "NOTES.md",
    "LICENSE.key",
    "a name\nof two lines",
    "changelogs/own.yml",
    "docs/.vault-password",
    "playbooks/group_vars/gpu_nodes.yml",
    "playbooks/host_vars/gpu-1.yml",
    "playbooks/inventory.yml",
    "playbooks/hosts",
)


def git(folder: Path, *arguments: str) -> list[str]:
    command = ["git", *arguments]
    printed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    return printed.split("\0")


def add_own_files(checkout: Path) -> None:
    for name in OWN_FOLDERS:
        (checkout / name / "lib/python3/site-packages").mkdir(parents=True)
        (checkout / name / "lib64").symlink_to("lib")
        (checkout / name / "gpu_nodes.yml").write_text("password: secret\n")
    for name in OWN_FILES:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("password: secret\n")


def build_artifact(checkout: Path, folder: Path) -> set[str]:
    """Return the files of the archive."""
    build = [sys.executable, "-m", "ansible", "galaxy", "collection", "build"]
    command = [*build, f"--output-path={folder}"]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    (tarball,) = folder.glob("metal-gpu-*.tar.gz")
    with tarfile.open(tarball) as archive:
        return {member.name for member in archive.getmembers() if not member.isdir()}


def pip_wheel(checkout: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the wheel as `pip install .` does, with the hatchling of this environment."""
    options = ["--no-build-isolation", "--no-deps", "--no-index", f"--wheel-dir={folder}"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "."]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)


def build_wheel(checkout: Path, folder: Path) -> set[str]:
    """Return the files of the collection in the wheel."""
    done = pip_wheel(checkout, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("metal_gpu-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names if not name.startswith(HOME)} == {
        "metal_gpu"
    }
    return {name.removeprefix(HOME) for name in names if name.startswith(HOME)}


# --- what is for users ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected() -> set[str]:
    """Return the files of the project that are for users, with the manifests of the build."""
    names = {name for name in git(ROOT, "ls-files", "-z") if (ROOT / name).is_file()}
    return MANIFESTS | {name for name in names if name.startswith(FOR_USERS)}


def test_it_is_known_of_each_file_whether_users_need_it() -> None:
    """Put a new folder into one of the lists. If users need it, put it into KEPT, too."""
    for name in git(ROOT, "ls-files", "-z"):
        if name:
            assert name.startswith(FOR_USERS) != name.startswith(FOR_DEVELOPERS), name
    assert KEPT == FOR_USERS


def test_galaxy_has_the_patterns(tmp_path: Path) -> None:
    """If this fails, run `.venv/bin/python scripts/artifact.py`."""
    (tmp_path / "galaxy.yml").write_bytes((ROOT / "galaxy.yml").read_bytes())
    write_patterns(tmp_path)
    assert (tmp_path / "galaxy.yml").read_text() == (ROOT / "galaxy.yml").read_text()
    assert read_galaxy(tmp_path)["build_ignore"] == make_patterns()


def test_patterns_leave_exactly_the_names_for_users() -> None:
    """Names that differ from those in one place, or only begin like them, are left out."""
    patterns = make_patterns()
    folders = {name for name in FOR_USERS if name.endswith("/")}
    kept = {name.removesuffix("/") for name in FOR_USERS} | {"changelogs", "inventories"}
    tried = {*kept, *(f"{name}one/two.yml" for name in folders)}
    for name in kept:
        for end in range(1, len(name) + 1):
            tried |= {name[:end], f"{name[:end]}x{name[end:]}", f"{name[:end]}/x"}
            tried |= {name[: end - 1] + other + name[end:] for other in "xX._-"}
    for name in tried:
        wanted = name.removesuffix("/") in kept or name.startswith(tuple(folders))
        wanted &= "/." not in name
        assert wanted != any(fnmatchcase(name, pattern) for pattern in patterns), name


# --- what is built -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout without git, as a downloaded archive gives."""
    copy_checkout(checkout := tmp_path_factory.mktemp("archive"))
    add_own_files(checkout)
    return checkout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout that git knows."""
    copy_checkout(checkout := tmp_path_factory.mktemp("checkout"))
    for command in (["init", "--quiet"], ["add", "--all", "--force"]):
        git(checkout, *command)
    add_own_files(checkout)
    return checkout


def test_artifact_has_only_what_users_need(
    checkout: Path, archive: Path, expected: set[str], tmp_path: Path
) -> None:
    """ansible-galaxy does not ask git."""
    for place in (checkout, archive):
        (folder := tmp_path / place.name).mkdir()
        assert build_artifact(place, folder) == expected


def test_wheel_has_only_what_users_need(
    checkout: Path, archive: Path, expected: set[str], tmp_path: Path
) -> None:
    for place in (checkout, archive):
        assert build_wheel(place, tmp_path / place.name) == expected


def test_link_that_a_wheel_cannot_hold_is_one_line(archive: Path, tmp_path: Path) -> None:
    (link := archive / "docs/own.md").symlink_to("scan.md")
    done = pip_wheel(archive, tmp_path)
    link.unlink()
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert f"metal-gpu: {link} is a symbolic link, which a wheel cannot hold." in said
    assert "Traceback" not in said


# --- what git knows ------------------------------------------------------------------------------

OURS = ["docs", "docs/scan.md", "playbooks", "playbooks/site.yml"]
OTHERS = ["docs/passwords.txt", "docs/private", "docs/private/key", "playbooks/own.yml"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a checkout in which git tracks OURS, and not OTHERS."""
    (small := tmp_path / "small").mkdir()
    (small / "galaxy.yml").write_bytes((ROOT / "galaxy.yml").read_bytes())
    for name in (name for name in OURS if "." in name):
        (small / name).parent.mkdir()
        (small / name).write_text("ours")
    for command in (["init", "--quiet"], ["add", "--all"]):
        git(small, *command)
    (small / "docs/private").mkdir()
    for name in (name for name in OTHERS if name != "docs/private"):
        (small / name).write_text("password: secret")
    return small


def test_only_what_git_tracks_is_read(small: Path) -> None:
    (small / "docs/lib64").symlink_to("private")
    assert read_paths(small) == OURS


def test_file_that_was_removed_is_not_read(small: Path) -> None:
    (small / "docs/scan.md").unlink()
    assert read_paths(small) == [name for name in OURS if name != "docs/scan.md"]


def test_hook_of_another_repository_reads_the_same(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git sets these variables for its hooks."""
    monkeypatch.setenv("GIT_DIR", str(ROOT / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(ROOT / ".git/index"))
    monkeypatch.setenv("GIT_COMMON_DIR", str(ROOT / ".git"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(ROOT / ".git/objects"))
    assert read_paths(small) == OURS


def test_checkout_of_another_user_is_read_by_git(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one of the host in a container. git itself refuses it."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(subprocess.CalledProcessError):
        git(small, "ls-files")
    assert read_paths(small) == OURS


def test_without_git_all_files_below_the_folders_are_read(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert read_paths(small) == sorted(OURS + OTHERS)


def test_repository_without_files_is_read_as_an_archive(small: Path) -> None:
    git(small, "rm", "-r", "--cached", "--quiet", ".")
    assert read_paths(small) == sorted(OURS + OTHERS)


def test_archive_in_another_repository_is_complete(small: Path) -> None:
    """Such as one that has inventories, and ignores what was unpacked there."""
    (small / ".git").rename(small.parent / ".git")
    assert read_paths(small) == sorted(OURS + OTHERS)
