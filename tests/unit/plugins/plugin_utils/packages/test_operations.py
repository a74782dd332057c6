# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What tests/unit/golden/packages, with the modules of every operation, does not show."""

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import (
    Request,
    completed_record,
    repository_mode,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.operations import (
    OperationUnknown,
    questions,
    steps,
)


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


@pytest.mark.parametrize(
    ("version", "created", "completed"),
    [
        pytest.param("", {}, {"installed": ["b"], "created": {}}, id="any version"),
        pytest.param("2", {"b": "/b"}, {"installed": [], "created": {"b": "/b"}}, id="a file"),
        pytest.param("2", {}, None, id="nothing that is not known before"),
    ],
)
def test_what_is_recorded_after_the_installation(
    version: str, created: dict[str, str], completed: dict[str, object] | None
) -> None:
    packages = {"a": {"version": "1"}, "b": {"version": version}}
    record = {"path": "/r.json", "packages": packages, "created": created}
    calls = completed_record(Request({"operation": "install", "record": record}))
    noted = [call.options["_note"] for call in calls]
    assert noted == ([{"path": "/r.json", **completed}] if completed else [])


def test_without_names_only_the_repositories_are_in_question() -> None:
    assert [*questions("debian", [])] == ["update"]


@pytest.mark.parametrize(("operation", "family"), [("stream", "debian"), ("repair", "redhat")])
def test_what_a_package_manager_does_not_have(operation: str, family: str) -> None:
    with pytest.raises(OperationUnknown, match=f"no operation {operation} on .* {family}"):
        steps(operation, family, Request({}))
