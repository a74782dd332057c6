# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a planner gets from the variables, and what it gives to the tasks of its role."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils import components
from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import Circumstances
from ansible_collections.metal.gpu.plugins.plugin_utils.components.planning import PLANNERS
from ansible_collections.metal.gpu.plugins.plugin_utils.variables import Option, load_options

ROLES = Path(__file__).parents[5] / "roles"
PLANNED = [*PLANNERS, "device_plugin"]
TYPES: dict[str, Any] = {"bool": bool, "int": int, "dict": Mapping, "str": str, "raw": object}


def shapes(role: str) -> Any:
    folder = PLANNERS[role].__module__.split(".")[-2] if role in PLANNERS else role
    return import_module(f"{components.__name__}.{folder}.shapes")


def kind(option: Option) -> Any:
    """Return the type of the values that an option accepts."""
    if option.choices:
        return Literal[option.choices]
    return list[TYPES[option.elements]] if option.type == "list" else TYPES[option.type]


def bare(found: Any) -> Any:
    """Return a type without that of a dictionary's values, which no specification has."""
    if get_origin(found) is list:
        return list[bare(*get_args(found))]
    return Mapping if get_origin(found) is Mapping else found


def alternatives(found: Any) -> set[Any]:
    """Return the types of a union, or the one type."""
    return {*get_args(found)} if get_origin(found) in (Union, UnionType) else {bare(found)}


@pytest.mark.parametrize("role", PLANNED)
def test_variables_have_the_types_of_the_argument_specification(role: str) -> None:
    defaults = ROLES / role / "defaults" / "main.yml"
    names = yaml.safe_load(defaults.read_text()) if defaults.exists() else {}
    declared = get_type_hints(shapes(role).Desired)
    options = {
        name.removeprefix(f"{role}_"): (name in names, option)
        for name, option in load_options().items()
        if role in option.roles
    }
    assert declared.keys() - options.keys() <= Circumstances.__annotations__.keys()
    for name in declared.keys() & options.keys():
        has_default, option = options[name]
        is_set = has_default or option.has_default or option.type == "raw"
        assert alternatives(declared[name]) == {
            *alternatives(kind(option)),
            *(() if is_set else (type(None),)),
        }, name


@pytest.mark.parametrize("role", PLANNED)
def test_tasks_use_the_data_that_the_plan_has(role: str) -> None:
    texts = [path.read_text() for path in (ROLES / role).glob("*/*.yml")]
    used = {key for text in texts for key in re.findall(rf"\b{role}_plan\.data\.(\w+)", text)}
    data = shapes(role).Data
    assert used <= data.__required_keys__ | data.__optional_keys__
