# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of an observation say what is observed, and the documentation says the same."""

from __future__ import annotations

from importlib import import_module
from typing import TypedDict, get_type_hints

import yaml

import returns
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.probe.registry import PROBES
from ansible_collections.metal.gpu.plugins.modules import node_info
from ansible_collections.metal.gpu.plugins.plugin_utils import components


def test_nothing_below_imports_from_above() -> None:
    for path in returns.ROOT.glob("plugins/module_utils/**/*.py"):
        assert "metal.gpu.plugins.plugin_utils" not in path.read_text(), path


def test_documentation_is_up_to_date() -> None:
    assert returns.returns() == node_info.RETURN, "run `make returns`"


class Part(TypedDict):
    """What repeats."""

    text: str | None  # a `word`; None: nothing
    # A comment above,
    # in two lines.
    number: int


class Whole(Part):
    """Not shown."""

    parts: dict[str, list[Part]]
    options: dict[str, bool]  # yes, or: no


def test_comments_are_descriptions() -> None:
    shown = yaml.safe_load("\n".join(returns.fields(Whole)))
    assert shown == {
        "text": {"type": "str", "description": "A C(word); V(null): nothing."},
        "number": {"type": "int", "description": "A comment above, in two lines."},
        "parts": {"type": "dict", "description": "What repeats. Keys: C(text) and C(number)."},
        "options": {"type": "dict", "description": "Yes, or: no."},
    }


def test_a_node_has_what_its_components_observe() -> None:
    found: dict[str, set[str]] = {}
    for component in PROBES:
        module = import_module(f"{components.__name__}.{component}.observed")
        for key, kind in get_type_hints(get_type_hints(module.observe)["return"]).items():
            engines = get_type_hints(kind) if key == "engines" else {}
            found.setdefault(key, set()).update(engines)
    assert set(found) == set(get_type_hints(Node))
    assert found["engines"] == set(get_type_hints(get_type_hints(Node)["engines"]))
