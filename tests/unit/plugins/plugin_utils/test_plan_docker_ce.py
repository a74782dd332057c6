# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from .test_plans import DOCKER, codes, merge, names, plan, without_nulls

NO_DOCKER = {
    "engines": {"docker": {"installed": False, "running": False, "version": None}},
    "packages": {"docker-ce": None, "docker-ce-cli": None, "containerd.io": None},
}


@pytest.mark.parametrize(
    ("changes", "wishes", "steps"),
    [
        pytest.param(
            NO_DOCKER,
            {},
            [
                "Install python3-debian for the Docker repository",
                "Add the Docker repository",
                "Install Docker",
                "Hold Docker",
                "Start Docker",
            ],
            id="virgin",
        ),
        pytest.param(
            {"engines": {"docker": {"running": False}}}, {}, ["Start Docker"], id="stopped"
        ),
        pytest.param(
            {"kubelet": {"running": False}}, {"state": "absent"}, ["Remove Docker"], id="absent"
        ),
        pytest.param(NO_DOCKER, {"state": "absent"}, [], id="absent-twice"),
    ],
)
def test_steps(changes: dict[str, Any], wishes: dict[str, Any], steps: list[str]) -> None:
    planned = plan("docker_ce", without_nulls(merge(DOCKER, changes)), **wishes)
    assert planned["refusals"] == []
    assert names(planned) == steps


@pytest.mark.parametrize(
    ("changes", "wishes", "expected"),
    [
        pytest.param({}, {"state": "absent"}, ["DOCKER_IN_USE"], id="pods"),
        pytest.param(
            {"engines": {"docker": {"config": {"error": "daemon.json, line 1, column 8: bad"}}}},
            {},
            ["DOCKER_CONFIG_INVALID"],
            id="JSON",
        ),
        pytest.param(
            {"kubelet": {"endpoint": "unix:///run/containerd/containerd.sock"}},
            {},
            ["ENGINE_MISMATCH"],
            id="containerd",
        ),
    ],
)
def test_refusals(changes: dict[str, Any], wishes: dict[str, Any], expected: list[str]) -> None:
    planned = plan("docker_ce", merge(DOCKER, changes), **wishes)
    assert codes(planned) == expected
    assert planned["steps"] == []


def test_packages_are_pinned() -> None:
    planned = plan("docker_ce", without_nulls(merge(DOCKER, NO_DOCKER)))
    assert planned["data"]["packages"] == [
        "docker-ce=5:29.8.1-1~debian.12~bookworm",
        "docker-ce-cli=5:29.8.1-1~debian.12~bookworm",
        "containerd.io=2.4.2-1~debian.12~bookworm",
    ]
