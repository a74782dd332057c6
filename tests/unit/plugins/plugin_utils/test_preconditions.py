# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.metal.gpu.plugins.modules.preconditions import PACKAGES
from ansible_collections.metal.gpu.plugins.plugin_utils import preconditions

REQUIREMENTS = Path(__file__).parents[4] / "meta" / "ee-requirements.txt"


@pytest.mark.parametrize(
    ("strategy", "is_refused"),
    [
        ("linear", False),
        ("ansible.builtin.linear", False),
        ("debug", False),
        ("mitogen_linear", False),
        ("free", True),
        ("ansible.builtin.free", True),
        ("host_pinned", True),
        ("mitogen_free", True),
        ("mycompany.ansible.scatter", True),
    ],
)
def test_strategy(strategy, is_refused):
    found = preconditions.refuse_strategy(strategy)
    assert [one["code"] for one in found] == ["STRATEGY_UNSUPPORTED"] * is_refused
    assert all(f"strategy {strategy};" in one["message"] for one in found)
    assert all("strategy: linear" in one["remedy"] for one in found)


@pytest.mark.parametrize(
    ("versions", "messages"),
    [
        ({}, []),
        ({"kubernetes": "24.2.0"}, []),
        ({"kubernetes": "37.0.2rc1"}, []),
        (
            {"kubernetes": None},
            [
                "controller: /usr/bin/python3 does not have the Python package kubernetes; this "
                "collection needs 24.2.0 or later"
            ],
        ),
        (
            {"kubernetes": "9.0.0"},
            [
                "controller: /usr/bin/python3 has version 9.0.0 of the Python package kubernetes; "
                "this collection needs 24.2.0 or later",
            ],
        ),
    ],
)
def test_packages(versions, messages):
    found = preconditions.refuse_packages("/usr/bin/python3", versions)
    assert [one["message"] for one in found] == messages
    for one in found:
        assert one["code"] == "CONTROLLER_PACKAGE_MISSING"
        assert re.search(r"`/usr/bin/python3 -m pip install '\w+>=[\d.]+'`", one["remedy"])


def test_execution_environments_get_the_same_packages():
    wanted = dict(re.findall(r"^(\w+)>=([\d.]+)", REQUIREMENTS.read_text(), re.MULTILINE))
    assert wanted == preconditions.REQUIRED
    assert set(PACKAGES) == set(wanted)
