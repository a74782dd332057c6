# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import (
    arguments,
    hold_arguments,
    hold_reason,
    install_reason,
    is_version,
)


def test_packages_and_holds() -> None:
    found = {
        "packages": {
            "a": {"version": "1-1", "held": True},
            "b": {"version": "2-1", "held": False},
        }
    }
    assert install_reason(found, {"a": "1-1"}) is None
    assert install_reason(found, {"b": "1-1", "c": "1-1"}) == "b is 2-1, not 1-1; not installed: c"
    assert hold_reason(found, ["a"]) is None
    assert hold_reason(found, ["a", "b", "c"]) == "not held, so an upgrade would change them: b, c"


@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        ("2.4.1-2~debian.12~bookworm", "2.4.1-*", True),
        ("2.4.10-1~debian.12~bookworm", "2.4.1-*", False),
        ("2.4.1-2.el9", "2.4.1", True),
        ("2.4.10-1.el9", "2.4.1", False),
        ("1-1", "", True),
    ],
)
def test_versions_that_leave_the_build_open(found: str, wanted: str, expected: bool) -> None:
    assert is_version(found, wanted) is expected
    reason = install_reason({"packages": {"a": {"version": found, "held": None}}}, {"a": wanted})
    assert (reason is None) is expected


def test_any_version_will_do() -> None:
    found = {"packages": {"a": {"version": "1-1", "held": None}}}
    assert install_reason(found, {"a": ""}) is None
    assert install_reason(found, {"b": ""}) == "not installed: b"


@pytest.mark.parametrize(
    ("family", "expected", "held"),
    [
        ("debian", ["a=1-1", "b"], ["a", "b"]),
        ("redhat", ["a-1-1", "b"], ["a-1-1", "b"]),
    ],
)
def test_words_of_the_package_manager(family: str, expected: list[str], held: list[str]) -> None:
    node = {"os": {"family": family}}
    assert arguments(node, {"a": "1-1", "b": ""}) == expected
    assert hold_arguments(node, {"a": "1-1", "b": ""}) == held
