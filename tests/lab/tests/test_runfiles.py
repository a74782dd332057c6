# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The `.run` files: their options by version, and what is in them. The slow scenario runs them."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from metal_lab import debs, runfiles
from metal_lab.description import Description, Node
from metal_lab.parts import RUN_FILES

MARK = b"exit_of_the_header\n"


@pytest.fixture
def silicon(tmp_path: Path) -> Path:
    for name in ("nvidia-smi", "libnvidia-ml", "libnvidia-sandboxutils", "libcuda"):
        for version in ("390.25", "580.178.04"):
            (tmp_path / (name if name == "nvidia-smi" else f"{name}.so.{version}")).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("version", "knows", "refuses"),
    [
        ("390.25", "--dkms", "--kernel-module-build-directory"),
        ("470.42.01", "--kernel-module-build-directory", "--kernel-module-type"),
        ("550.163.01", "--no-rebuild-initramfs", "--kernel-module-type"),
        ("580.178.04", "--kernel-module-type", "--no-dkms"),
    ],
)
def test_options_by_version(version: str, knows: str, refuses: str) -> None:
    found = runfiles.options(version)
    assert knows in found
    assert refuses not in found


@pytest.mark.parametrize(
    ("version", "folders"),
    [("390.25", {"kernel"}), ("580.178.04", {"kernel", "kernel-open"})],
)
def test_archive_is_behind_the_script(
    silicon: Path, tmp_path: Path, version: str, folders: set[str]
) -> None:
    path = runfiles.run_file(version, silicon).build(tmp_path / "out")
    assert path.name == f"NVIDIA-Linux-x86_64-{version}.run"
    head, _, archive = path.read_bytes().partition(b"\n" + MARK)
    assert subprocess.run(["sh", "-n"], input=head, check=False).returncode == 0
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        names = found.getnames()
    assert {Path(name).parent.name for name in names if name.endswith("nvidia.text")} == folders
    assert {"files/usr/bin/nvidia-smi", "files/usr/bin/nvidia-modprobe"} <= {*names}
    again = runfiles.run_file(version, silicon).build(tmp_path / "again")
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["head.sh", "nvidia-installer"])
def test_scripts_have_valid_syntax(name: str) -> None:
    subprocess.run(["sh", "-n", runfiles.SOURCES / name], check=True)


def test_groups(silicon: Path) -> None:
    nodes = (Node("gpu-1", "debian12", "t4x1"),)
    wanted = Description(nodes, (RUN_FILES,), ("580.178.04",))
    files, dkms = runfiles.groups(wanted, lambda _version: silicon)
    assert [one.name for one in files.packages] == [
        "NVIDIA-Linux-x86_64-580.178.04.run",
        "NVIDIA-Linux-x86_64-390.25.run",
        "NVIDIA-Linux-aarch64-580.178.04.run",
    ]
    paths = {path for one in dkms.packages for path in debs.texts(one)}
    record = yaml.safe_load(runfiles.RECORD.read_text())
    assert {row["path"] for row in record["needs"]} <= paths
    names = {one.name for one in dkms.packages}
    assert names >= {"dkms", *(row["package"] for row in record["needs"])}
    assert list(runfiles.groups(Description(nodes, (), ()), lambda _version: silicon)) == []
