# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A project's scenes, set up on a node whose `docker exec` is this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from metal_lab import scenes
from metal_lab.state import State

SCENE = """\
#!/bin/sh
# SPDX-License-Identifier: GPL-3.0-or-later

# a text on the disk
# Of the file beside the scene.
cat text; echo "$@"; touch left-over
"""
DOCKER = """\
#!/bin/sh -eu
# docker exec --workdir=FOLDER [--interactive] CONTAINER COMMAND...
cd "${2#--workdir=}"
shift 2
[ "$1" != --interactive ] || shift
shift
exec "$@"
"""


@pytest.fixture
def state(monkeypatch, tmp_path) -> State:
    """A laboratory with one scene, and a stand-in for Docker that runs commands here."""
    folder, programs = tmp_path / "scenes", tmp_path / "bin"
    (folder / "tale").mkdir(parents=True)
    (folder / "tale.sh").write_text(SCENE)
    (folder / "tale" / "text").write_text("once upon a time\n")
    programs.mkdir()
    (programs / "docker").write_text(DOCKER)
    (programs / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setattr(scenes, "PLACE", str(tmp_path / "node"))
    return State("default", nodes={"gpu-1": "172.30.0.11"}, scenes=str(folder))


def test_scene_runs_beside_its_files_and_leaves_none(state, tmp_path):
    output = scenes.set_up(state, "gpu-1", "tale", ["the", "end"])
    assert output == "once upon a time\nthe end"
    assert not (tmp_path / "node").exists()


def test_listing_has_the_first_comment(state):
    assert scenes.listing(Path(state.scenes)).split(maxsplit=1) == ["tale", "a text on the disk"]
    assert scenes.listing(None) == "no scenes"


@pytest.mark.parametrize("folder", ["", "the one with scenes"])
def test_unknown_scene(state, folder):
    state.scenes = state.scenes if folder else ""
    with pytest.raises(SystemExit, match=r"no scene 'war'.*lab scene gpu-1 list"):
        scenes.set_up(state, "gpu-1", "war", [])
