# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What YAML and types have to list is what the list of components says."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Engines
from ansible_collections.metal.gpu.plugins.plugin_utils import components, tags
from ansible_collections.metal.gpu.plugins.plugin_utils.components import COMPONENTS, ENGINES
from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import Engine
from ansible_collections.metal.gpu.plugins.plugin_utils.components.planning import PLANNERS, SITE
from ansible_collections.metal.gpu.plugins.plugin_utils.variables import load_options
from metal_gpu.playbooks import stages

ROOT = Path(__file__).parents[5]
ORDER = [one.role for one in COMPONENTS]
OF_SITE = [one.role for one in COMPONENTS if one.is_for_site]


def called(value: Any) -> Iterator[tuple[str, ...]]:
    """Yield each role of plays that runs as a whole, with its tags, in their order."""
    if isinstance(value, list):
        for one in value:
            yield from called(one)
    elif isinstance(value, dict):
        imported = value.get("ansible.builtin.import_role", {})
        name = value.get("role", "") or ("tasks_from" not in imported and imported.get("name", ""))
        if name:
            yield (name.removeprefix("metal.gpu."), *value.get("tags", []))
        yield from called([*value.values()])


def of_playbook(name: str) -> list[tuple[str, ...]]:
    return list(called(yaml.safe_load((ROOT / f"playbooks/{name}.yml").read_text())))


def test_each_component_is_a_folder_and_a_role() -> None:
    for one in COMPONENTS:
        assert callable(import_module(f"{components.__name__}.{one.name}.plan").plan)
    roles = {path.name for path in (ROOT / "roles").iterdir()}
    assert {*ORDER} == roles - {"teardown", "verify"}
    assert {*stages.WORDS} == roles


@pytest.mark.parametrize("playbook", ["site", "docker_hosts"])
def test_playbooks_call_roles_in_the_order_of_the_list(playbook: str) -> None:
    roles = [name for name, *words in of_playbook(playbook) if words and name in ORDER]
    assert roles == sorted(roles, key=ORDER.index)


def test_site_calls_every_role_that_is_for_it() -> None:
    roles = [name for name, *_tags in of_playbook("site")]
    assert ["preflight", *(name for name in roles if name != "preflight")] == SITE
    assert {name for name, *_tags in of_playbook("teardown")} - {"teardown"} == {*OF_SITE}


def test_the_tag_of_each_role_is_that_of_the_list() -> None:
    playbooks = [path.stem for path in (ROOT / "playbooks").glob("[!_]*.yml")]
    found = {row for name in playbooks for row in of_playbook(name) if len(row) > 1}
    assert found == {*tags.ROLES.items()}


def test_every_engine_can_be_chosen_and_is_observed() -> None:
    assert [*Engines.__annotations__] == [*ENGINES]
    assert get_args(Engine) == ("auto", *ENGINES)
    assert load_options()["metal_gpu_engine"].choices == ("auto", *ENGINES)
    assert [*PLANNERS] == [one.role for one in COMPONENTS if one.where == "node"]
