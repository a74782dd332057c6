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
WANTED = Repository(
    "metal-gpu-cuda", "https://mirror.example/cuda/", "/", "", "key.asc", PINS["ed25519"]
)


def sources(key: str = "ed25519", **changes: str) -> str:
    """As ansible.builtin.deb822_repository writes it."""
    lines = (KEYS / f"{key}.asc").read_text().splitlines()
    fields = {
        "X-Repolib-Name": "metal-gpu-cuda",
        "Types": "deb",
        "URIs": "https://mirror.example/cuda/",
        "Suites": "/",
        "Signed-By": "\n" + "\n".join(f"    {line or '.'}" for line in lines),
        **changes,
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items())


def node(text: str | None, name: str = "metal-gpu-cuda", suffix: str = "sources") -> dict[str, Any]:
    path = f"/etc/apt/sources.list.d/{name}.{suffix}"
    return {"repositories": {} if text is None else {name: {"path": path, "text": text}}}


def theirs(text: str, suffix: str) -> dict[str, Any]:
    """A node with a source that somebody else has written."""
    return node(text, "cuda-debian12-x86_64", suffix)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(node(sources()), id="as written"),
        pytest.param(node(sources(URIs="https://mirror.example/cuda")), id="without slash"),
        pytest.param(
            theirs("deb [signed-by=/k.gpg] https://mirror.example/cuda/ /\n", "list"),
            id="somebody's .list",
        ),
        pytest.param(
            theirs(sources(**{"Signed-By": "/etc/apt/keyrings/x.asc"}), "sources"),
            id="somebody's .sources with a key file",
        ),
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
            theirs("deb https://old.example/ /\n", "list"), "does not exist", id="other .list"
        ),
        pytest.param(
            theirs("# deb https://mirror.example/cuda/ /\n", "list"),
            "does not exist",
            id="commented .list",
        ),
        pytest.param(
            theirs(sources(Enabled="no"), "sources"), "does not exist", id="somebody's, off"
        ),
    ],
)
def test_repository_has_to_be_written(found: dict[str, Any], reason: str) -> None:
    assert reason in (repository_gap(found, WANTED) or "")


def test_architecture_placeholder_of_upstreams_list() -> None:
    """As NVIDIA's instructions for the container toolkit write it."""
    wanted = WANTED._replace(url="https://mirror.example/stable/deb/amd64/")
    text = "deb [signed-by=/k.gpg] https://mirror.example/stable/deb/$(ARCH) /\n"
    assert repository_gap(theirs(text, "list"), wanted) is None


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
