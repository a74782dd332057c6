# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import yaml
from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.metal.gpu.plugins.plugin_utils.plain_types import plain

DATA = {"texts": {"/etc/a.yaml": "a: [1, 2]\n"}, "rows": [{"n": 1, "none": None, "yes": True}]}


def types(value: Any) -> set[type]:
    if isinstance(value, dict):
        return {type(value)}.union(*(types(item) for item in (*value, *value.values())))
    if isinstance(value, list):
        return {type(value)}.union(*(types(item) for item in value))
    return {type(value)}


def test_what_a_module_returned_is_plain():
    found = plain(wrap_var(DATA))
    assert found == DATA
    assert types(found) == {dict, list, str, int, bool, type(None)}


def test_text_of_a_node_can_be_read_as_yaml():
    """Which ansible-core 2.16 prevents, when it is left as it is."""
    (text,) = plain(wrap_var(DATA))["texts"].values()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    assert yaml.load(text, loader) == {"a": [1, 2]}


class MarkedInt(int):
    """What ansible-core makes of a number of an inventory since 2.19."""


class MarkedFloat(float):
    """The same."""


def test_marked_numbers_can_be_written_as_yaml():
    found = plain({"replicas": MarkedInt(5), "part": MarkedFloat(0.5), "on": True})
    assert types(found) == {dict, str, int, float, bool}
    assert yaml.safe_dump(found) == "'on': true\npart: 0.5\nreplicas: 5\n"
