# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this collection asks of the laboratory: descriptions, scenes, the inventory's template."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from metal_lab import facts, mirror, scenes
from metal_lab.description import read
from metal_lab.state import State

ROOT = Path(__file__).resolve().parents[2]
LABS = ROOT / "tests/labs"
DESCRIPTIONS = sorted(
    path
    for pattern in ("molecule/*/lab.yml", "tests/labs/*.yml", "tests/bench/labs/*.yml")
    for path in ROOT.glob(pattern)
)


# What only a laboratory that runs can tell.
REGISTRY = {
    "url": "https://172.30.0.1",
    "hosts": ["docker.io", "nvcr.io"],
    "ca": "-----BEGIN CERTIFICATE-----",
    "username": "metal-lab",
    "password": "secret",
}


def variables() -> set[str]:
    """Return every variable of our roles."""
    return {
        option
        for spec in ROOT.glob("roles/*/meta/argument_specs.yml")
        for entry in yaml.safe_load(spec.read_text())["argument_specs"].values()
        for option in entry.get("options", {})
    }


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def inventory(description: Path, published: Path) -> dict[str, Any]:
    """Return the group of the inventory that the laboratory writes."""
    described = read(description)
    state = State("default", gateway="172.30.0.1", programs="/cache/kubernetes")
    state.nodes = {node.name: f"172.30.0.{n}" for n, node in enumerate(described.nodes, 11)}
    collected = facts.collect(state, described, published, "0" * 40)
    collected["registry"] = REGISTRY
    (group,) = yaml.safe_load(facts.render(described.inventory, collected)).values()
    return dict(group)


def test_laboratory_knows_nothing_about_this_collection() -> None:
    ours = re.compile(rf"metal[._]gpu|gpu_nodes|\b(?:{'|'.join(sorted(variables()))})\b")
    files = [
        path
        for path in (ROOT / "tests/lab/metal_lab").rglob("*")
        if path.is_file() and path.suffix not in (".c", ".h", ".pyc", ".sum")
    ]
    assert len(files) > 50
    for path in files:
        licence = re.compile(r".*SPDX-FileCopyrightText.*")
        assert ours.findall(licence.sub("", path.read_text())) == [], name(path)


@pytest.mark.parametrize("path", DESCRIPTIONS, ids=name)
def test_descriptions_use_this_template_and_these_scenes(path: Path) -> None:
    described = read(path)
    assert described.inventory.resolve() == LABS / "inventory.yml.j2"
    assert described.scenes is not None
    assert described.scenes.resolve() == LABS / "scenes"


def test_every_scene_says_what_it_is() -> None:
    scripts = sorted((LABS / "scenes").glob("*.sh"))
    assert len(scripts) > 5
    assert [script.name for script in scripts if not scenes.what(script)] == []


@pytest.mark.parametrize("path", DESCRIPTIONS, ids=name)
def test_inventory_has_only_variables_that_exist(path: Path, tmp_path: Path) -> None:
    published = tmp_path / mirror.FILES["cri-dockerd"]
    published.mkdir(parents=True)
    (published / "cri-dockerd.deb").touch()
    group = inventory(path, tmp_path)
    used = {*group["vars"]}.union(*group["hosts"].values())
    assert {variable for variable in used if not variable.startswith("ansible_")} <= variables()
    for node in read(path).nodes:
        assert node.vars.items() <= group["hosts"][node.name].items()


@pytest.mark.parametrize("path", DESCRIPTIONS, ids=name)
def test_registries_are_what_the_engine_can_use(path: Path, tmp_path: Path) -> None:
    """Docker has mirrors of docker.io alone, also a Docker that a role installs later."""
    hosts = inventory(path, tmp_path)["hosts"]
    for node in read(path).nodes:
        items = hosts[node.name].get("registries_hosts", [])
        mirrored = [item["host"] for item in items if "mirrors" in item]
        if node.images == "loaded":
            assert items == []
        elif node.engine == "docker" or node.images == "names":
            assert mirrored == ["docker.io"]
            assert all(item["password"] == REGISTRY["password"] for item in items)
        else:
            assert mirrored == REGISTRY["hosts"]
