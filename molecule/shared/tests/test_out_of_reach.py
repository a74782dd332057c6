# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts whose vendors are out of reach, of any distribution: whom they ask, and the script."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from air_gap import AirGap


@pytest.fixture(scope="module")
def gap(laboratory: Any) -> AirGap:
    return AirGap(laboratory.name)


def test_nodes_ask_nothing_of_the_internet(laboratory, gap):
    """The archive of the distribution is at the same address, as a mirror that the admin has."""
    of_archive = tuple(f"/{folder}/" for folder in gap.archives)
    registry = Path(laboratory.facts["registry"]["log"]).read_text()
    for node in laboratory.gpu_count:
        asked = gap.asked("mirror", laboratory.addresses[node])
        assert asked
        assert [path for path in asked if not path.startswith(of_archive)] == []
        assert f'"{laboratory.addresses[node]}:' not in registry


@pytest.fixture
def script(gap: AirGap, tmp_path: Path) -> Path:
    """A folder with nothing but the script."""
    shutil.copy(gap.folder / "fill-mirror.sh", tmp_path)
    return tmp_path


def test_script_fails_without_the_internet(gap, script):
    """apt-mirror ends with 0 without having anything."""
    result = gap.fill(script)
    assert result.returncode != 0
    assert "404" in result.stdout
