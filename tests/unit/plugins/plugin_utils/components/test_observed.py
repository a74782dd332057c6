# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of an observation are those that the module's documentation promises."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.probe.registry import PROBES
from ansible_collections.metal.gpu.plugins.modules import node_info
from ansible_collections.metal.gpu.plugins.plugin_utils import components
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import Failure
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node

RETURN = yaml.safe_load(node_info.RETURN)
DOCUMENTED = RETURN["gpu_node"]["contains"]
SIMPLE = {str: "str", bool: "bool", int: "int", float: "float"}


def optional(kind: Any) -> Any:
    """Return a type without None."""
    kinds = [one for one in get_args(kind) if one is not NoneType]
    return kinds[0] if NoneType in get_args(kind) else kind


def type_name(kind: Any) -> str:
    """Return the name of a type in documentation."""
    if get_origin(kind) is list:
        return "list"
    return SIMPLE.get(kind, "dict")


def differences(kind: Any, documented: dict[str, Any], path: str) -> Iterator[str]:
    """Yield what the documentation of a value says differently from its type."""
    kind = optional(kind)
    if documented["type"] != type_name(kind):
        yield f"{path} is a {type_name(kind)}, documented as {documented['type']}"
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
        if documented.get("elements") != type_name(kind):
            yield f"{path} has elements {type_name(kind)}, not {documented.get('elements')}"
    if get_origin(kind) in (dict, Mapping):
        kind = get_args(kind)[1]
    if not is_typeddict(kind):
        return
    keys = get_type_hints(kind)
    contains = documented.get("contains")
    if contains is None:
        yield from unmentioned(keys, documented, path)
        return
    if set(keys) != set(contains):
        yield f"{path}: documented keys that differ are {sorted(set(keys) ^ set(contains))}"
    for key in set(keys) & set(contains):
        yield from differences(keys[key], contains[key], f"{path}.{key}")


def unmentioned(keys: dict[str, Any], documented: dict[str, Any], path: str) -> Iterator[str]:
    """Yield the keys that a description in prose neither names nor refers to."""
    description = "".join(documented["description"])
    if re.search(r"as in RV\(", description):
        return
    missing = [key for key in keys if f"C({key})" not in description]
    if missing:
        yield f"{path}: the description does not name {missing}"


@pytest.mark.parametrize("key", get_type_hints(Node))
def test_types_are_documented(key: str) -> None:
    assert list(differences(get_type_hints(Node)[key], DOCUMENTED[key], key)) == []


def test_failures_are_documented() -> None:
    assert list(differences(list[Failure], RETURN["failures"], "failures")) == []


def test_all_keys_are_documented() -> None:
    assert set(DOCUMENTED) == set(get_type_hints(Node))


def test_a_node_has_what_its_components_observe() -> None:
    found: dict[str, set[str]] = {}
    for component in PROBES:
        module = import_module(f"{components.__name__}.{component}.observed")
        for key, kind in get_type_hints(module.Observed).items():
            engines = get_type_hints(kind) if key == "engines" else {}
            found.setdefault(key, set()).update(engines)
    assert set(found) == set(get_type_hints(Node))
    assert found["engines"] == set(get_type_hints(get_type_hints(Node)["engines"]))
