# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe.program_files import (
    find_library,
    read_program,
)


def row(path, exists, executable):
    return {"path": path, "exists": exists, "executable": executable}


@pytest.fixture
def program(tmp_path):
    def plant(path, mode):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("a program")
        file.chmod(mode)

    return plant


def test_a_program(program, tmp_path):
    program("usr/bin/a", 0o755)
    assert read_program(tmp_path, "a") == row("/usr/bin/a", True, True)


def test_a_program_that_was_removed(tmp_path):
    assert read_program(tmp_path, "a") == row("/usr/bin/a", False, False)


def test_a_program_that_is_not_executable(program, tmp_path):
    program("usr/bin/a", 0o644)
    assert read_program(tmp_path, "a") == row("/usr/bin/a", True, False)


def test_the_one_that_can_be_started_counts(program, tmp_path):
    program("usr/local/bin/a", 0o644)
    program("opt/bin/a", 0o755)
    assert read_program(tmp_path, "a")["path"] == "/opt/bin/a"


def test_one_elsewhere_is_not_the_one_of_the_package(program, tmp_path):
    program("usr/local/bin/a", 0o755)
    assert read_program(tmp_path, "a", ["/usr/bin"]) == row("/usr/bin/a", False, False)


@pytest.mark.parametrize("target", ["b", "a"], ids=["gone", "loop"])
def test_a_link_that_leads_nowhere(tmp_path, target):
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/a").symlink_to(target)
    assert read_program(tmp_path, "a")["exists"] is False


def test_a_folder_is_no_program(tmp_path):
    (tmp_path / "usr/bin/a").mkdir(parents=True)
    assert read_program(tmp_path, "a")["exists"] is False


@pytest.mark.parametrize("directory", ["usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib"])
def test_a_library(program, tmp_path, directory):
    program(f"{directory}/libnvidia-ml.so.580.178.04", 0o644)
    (tmp_path / directory / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.178.04")
    assert find_library(tmp_path, "libnvidia-ml.so.1") == f"/{directory}/libnvidia-ml.so.1"
    (tmp_path / directory / "libnvidia-ml.so.580.178.04").unlink()
    assert find_library(tmp_path, "libnvidia-ml.so.1") is None
