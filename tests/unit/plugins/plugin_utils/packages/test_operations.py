# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What tests/unit/golden/packages, with the modules of every operation, does not show."""

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import (
    Request,
    repository_mode,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.operations import (
    OperationUnknown,
    note_versions,
    questions,
    steps,
    unversioned,
)

RECORD = {
    "path": "/r.json",
    "packages": {"a": {"version": "1"}, "b": {"version": ""}, "c": {"version": ""}},
}


@pytest.mark.parametrize(
    ("url", "mode"),
    [
        ("https://me:CANARY@mirror.example/", "0600"),
        ("https://token@mirror.example/", "0600"),
        ("https://mirror.example/a@b", "0644"),
    ],
)
def test_only_root_reads_a_password(url: str, mode: str) -> None:
    assert repository_mode(url) == mode


def test_any_version_is_recorded_once_it_is_known() -> None:
    assert unversioned(RECORD) == ["b", "c"]
    (call,) = note_versions(RECORD, {"a": {"version": "1"}, "b": {"version": "2"}})
    assert call.options["merge"] == {"b": {"version": "2"}}
    assert note_versions(RECORD, {}) == ()


def test_without_names_only_the_repositories_are_in_question() -> None:
    assert [*questions("debian", [])] == ["update"]


@pytest.mark.parametrize(("operation", "family"), [("stream", "debian"), ("repair", "redhat")])
def test_what_a_package_manager_does_not_have(operation: str, family: str) -> None:
    with pytest.raises(OperationUnknown, match=f"no operation {operation} on .* {family}"):
        steps(operation, family, Request({}))
