# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.plan_packages import (
    Repository,
    hold_gap,
    packages_gap,
    parse_deb822,
    repository_gap,
)

KEYS = Path(__file__).parents[2] / "fixtures" / "keys"
PINS = dict(
    line.split() for line in (KEYS / "fingerprints.txt").read_text().splitlines() if line[0] != "#"
)
WANTED = Repository("nvidia-cuda", "https://mirror.example/cuda/", "/", "", PINS["ed25519"])


def sources(key: str = "ed25519", **changes: str) -> str:
    """As ansible.builtin.deb822_repository writes it."""
    lines = (KEYS / f"{key}.asc").read_text().splitlines()
    fields = {
        "X-Repolib-Name": "nvidia-cuda",
        "Types": "deb",
        "URIs": "https://mirror.example/cuda/",
        "Suites": "/",
        "Signed-By": "\n" + "\n".join(f"    {line or '.'}" for line in lines),
        **changes,
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items())


def node(text: str | None, suffix: str = "sources") -> dict[str, Any]:
    path = f"/etc/apt/sources.list.d/nvidia-cuda.{suffix}"
    return {"repositories": {} if text is None else {"nvidia-cuda": {"path": path, "text": text}}}


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(node(sources()), id="as written"),
        pytest.param(node(sources(URIs="https://mirror.example/cuda")), id="without slash"),
        pytest.param(node("deb https://mirror.example/cuda/ /\n", "list"), id="somebody's .list"),
    ],
)
def test_repository_is_there(found: dict[str, Any]) -> None:
    assert repository_gap(found, WANTED) is None


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        pytest.param(node(None), "does not exist", id="missing"),
        pytest.param(node(""), "has Types empty, not deb", id="empty"),
        pytest.param(node(sources(URIs="https://old.example/")), "has Uris https://old", id="URL"),
        pytest.param(node(sources(Suites="bookworm")), "has Suites bookworm, not /", id="suite"),
        pytest.param(node(sources(Enabled="no")), "has Enabled no, not yes", id="off"),
        pytest.param(node(sources("rsa")), f"trusts the key {PINS['rsa']}", id="key"),
        pytest.param(
            node(sources(**{"Signed-By": "/etc/apt/keyrings/x.asc"})),
            "no usable key",
            id="key file",
        ),
        pytest.param(
            node("deb https://old.example/ /\n", "list"), "has not https", id="other .list"
        ),
    ],
)
def test_repository_has_to_be_written(found: dict[str, Any], reason: str) -> None:
    assert reason in (repository_gap(found, WANTED) or "")


def test_only_the_first_stanza_counts() -> None:
    assert parse_deb822("# comment\nTypes: deb\nURIs: a\n\nTypes: deb-src\n") == {
        "types": "deb",
        "uris": "a",
    }


def test_packages_and_holds() -> None:
    found = {
        "packages": {
            "a": {"version": "1-1", "held": True},
            "b": {"version": "2-1", "held": False},
        }
    }
    assert packages_gap(found, {"a": "1-1"}) is None
    assert packages_gap(found, {"b": "1-1", "c": "1-1"}) == "b is 2-1, not 1-1; not installed: c"
    assert hold_gap(found, ["a"]) is None
    assert hold_gap(found, ["a", "b", "c"]) == "b, c can be upgraded by anyone"
