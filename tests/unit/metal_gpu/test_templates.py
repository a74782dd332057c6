# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Templates of variables without Ansible: each value as ansible-core renders it."""

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils import variables
from metal_gpu.templates import NotRendered, Unsafe, Variables


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{{ number }}", 4),
        ("{{ version }}", "1.20"),  # a text that looks like a number stays a text
        ("v{{ version }}", "v1.20"),
        ("{{ unset | default(true) }}", True),
        ("{{ unset | default([]) }}", []),
        ("{{ nested }}", "v1.20!"),
        (["{{ number }}", {"a": "{{ version }}"}], [4, {"a": "1.20"}]),
        (Unsafe("{{ number }}"), "{{ number }}"),
        ("{% if number > 3 %}many{% endif %}", "many"),
        ("{{ true }}", True),
        ("{{ [1, 'a'] }}", [1, "a"]),
        ("plain", "plain"),
        (None, None),
    ],
)
def test_values(value, expected):
    values = {"number": 4, "version": "1.20", "nested": "v{{ version }}!", "asked": value}
    assert Variables(values)["asked"] == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{{ missing }}", "'missing' is undefined"),
        ("{{ lookup('env', 'HOME') }}", "'lookup' is undefined"),
        ("{{ number | to_nice_yaml }}", "No filter named 'to_nice_yaml'"),
        ("{{ asked }}", "in a circle"),
        ("{{ ", "unexpected"),
        ("{{ number.__class__.__mro__ }}", "unsafe"),
    ],
)
def test_what_needs_ansible_is_named(value, expected):
    with pytest.raises(NotRendered, match=expected) as refused:
        Variables({"asked": value, "number": 4})["asked"]
    assert "the variable asked" in str(refused.value)


def test_all_defaults_of_the_roles_can_be_rendered():
    rendered = Variables(variables.load_defaults())
    assert all(rendered[name] is not ... for name in rendered.values)
    assert rendered["containerd_repository"] is True
