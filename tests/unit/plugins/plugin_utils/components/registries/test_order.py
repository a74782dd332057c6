# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order of mirrors in files that have some of them already: engines ask in this order."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    names,
)
from ansible_collections.metal.gpu.tests.unit.support.carry_out import write
from ansible_collections.metal.gpu.tests.unit.support.registry_machine import (
    ADMIN,
    DAEMON_JSON,
    Machine,
)

HOSTS = "/etc/containerd/certs.d/docker.io/hosts.toml"
YAML = "/etc/rancher/k3s/registries.yaml"
CRIO = "/etc/containers/registries.conf.d/50-metal-gpu.conf"
A, B, C = (f"https://{one}.example" for one in "abc")


def hub(*urls: str) -> list[dict[str, Any]]:
    return [{"host": "docker.io", "mirrors": [{"url": url} for url in urls]}]


def order(node: Machine, engine: str) -> list[str]:
    """Return the mirrors in the order of the file."""
    if engine == "docker":
        return [*json.loads(node.text(DAEMON_JSON))["registry-mirrors"]]
    if engine == "crio":
        (table,) = tomllib.loads(node.text(CRIO))["registry"]
        return [f"https://{one['location']}" for one in table["mirror"]]
    if engine == "k3s":
        return [*yaml.safe_load(node.text(YAML))["mirrors"]["docker.io"]["endpoint"]]
    return [*tomllib.loads(node.text(HOSTS))["host"]]


@pytest.mark.parametrize("engine", ["containerd-1.7", "containerd-2.4", "docker", "crio", "k3s"])
@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param((A, B), (B, A), id="in another order"),
        pytest.param((A, B), (C, A, B), id="a new one first"),
        pytest.param((A, B), (A, C, B), id="a new one between"),
        pytest.param((A, B), (A, B, C), id="a new one last"),
        pytest.param((A, B, C), (A, C), id="one less"),
    ],
)
def test_engines_get_the_order_of_the_variable(
    machine: Callable[[str], Machine], engine: str, first: tuple[str, ...], then: tuple[str, ...]
) -> None:
    node = machine(engine)
    of_packages = ("containerd/certs.d/docker.io", "containers", "docker", "rancher/k3s")
    for folder in of_packages:
        (node.root / "etc" / folder).mkdir(parents=True)
    before = node.tree()
    node.run(hub(*first))
    assert order(node, engine) == [*first]
    node.run(hub(*then))
    assert order(node, engine) == [*then]
    assert names(node.plan(hub(*then))) == []
    node.run([], state="absent")
    assert node.tree() == before


@pytest.mark.parametrize(
    ("engine", "path", "text"),
    [
        ("containerd-set", HOSTS, f'[host."{B}"]\n  capabilities = ["pull", "resolve"]\n'),
        ("docker", DAEMON_JSON, json.dumps({"registry-mirrors": [B]})),
        ("k3s", YAML, f"mirrors:\n  docker.io:\n    endpoint: [{B}]\n"),
    ],
)
def test_mirrors_of_the_admin_stay_before_those_of_the_role(
    machine: Callable[[str], Machine], engine: str, path: str, text: str
) -> None:
    node = machine(engine)
    write(node.root, path, text, 0o600)
    node.run(hub(A, B))
    assert order(node, engine) == [B, A]
    assert names(node.plan(hub(A, B))) == []
    node.run(hub(C, B, A))
    assert order(node, engine) == [B, C, A]
    assert names(node.plan(hub(C, B, A))) == []
    node.run([], state="absent")
    assert node.text(path) == text


@pytest.mark.parametrize("engine", ["containerd-set", "docker", "k3s"])
def test_order_that_somebody_has_changed_is_written_again(
    machine: Callable[[str], Machine], engine: str
) -> None:
    node = machine(engine)
    path = {"docker": DAEMON_JSON, "k3s": YAML}.get(engine, HOSTS)
    node.run(hub(A, B))
    text = node.text(path).replace(A, "@").replace(B, A).replace("@", B)
    write(node.root, path, f"{text}\n", 0o600)
    planned = node.run(hub(A, B))
    (path,) = planned["data"]["replace"]
    reason = next(
        one["reason"] for one in planned["steps"] if one["slug"] in ("settings", "logins")
    )
    assert reason.startswith(f"in another order: {path} (")
    assert order(node, engine) == [A, B]
    assert names(node.plan(hub(A, B))) == []


def test_docker_is_reloaded_for_another_order(machine: Callable[[str], Machine]) -> None:
    node = machine("docker")
    write(node.root, DAEMON_JSON, ADMIN["docker"][DAEMON_JSON])
    node.run(hub(A, B))
    planned = node.run(hub(B, A))
    assert order(node, "docker") == ["https://own.example/", B, A]
    assert "Reload Docker" in names(planned)


@pytest.mark.parametrize("is_edited", [False, True])
def test_run_that_stopped_before_docker_was_reloaded_for_another_order(
    machine: Callable[[str], Machine], is_edited: bool
) -> None:
    """`docker info` has the former order. An edit of somebody else may not be meant for now."""
    node = machine("docker")
    node.run(hub(A, B))
    node.run(hub(B, A))
    node.mirrors = [A, B]
    if is_edited:
        write(node.root, DAEMON_JSON, f'{{"debug": true, {node.text(DAEMON_JSON).strip()[1:]}')
    planned = node.plan(hub(B, A))
    assert names(planned) == ([] if is_edited else ["Reload Docker"])
    due = [one["code"] for one in planned["notices"]]
    assert due == (["REGISTRIES_RESTART_DUE"] if is_edited else [])
    if not is_edited:
        (step,) = planned["steps"]
        assert step["reason"] == f"Docker uses its mirrors in another order than {DAEMON_JSON} has"
        assert planned["data"]["change"] == {"path": DAEMON_JSON, "actor": "metal.gpu.registries"}
    node.mirrors = [B, A]
    assert (names(node.plan(hub(B, A))), node.plan(hub(B, A))["notices"]) == ([], [])


def test_docker_may_have_more_mirrors_than_the_variable(machine: Callable[[str], Machine]) -> None:
    """Those of a flag of the unit, or of the admin, who has not reloaded Docker for one more."""
    node = machine("docker")
    node.run(hub(A, B))
    node.mirrors = [C, A, B]
    planned = node.plan(hub(A, B))
    assert (names(planned), planned["notices"]) == ([], [])


def test_docker_has_a_mirror_of_the_admin_with_a_slash_once(
    machine: Callable[[str], Machine],
) -> None:
    """Docker drops the second of both, so its order is that of the admin."""
    node = machine("docker")
    write(node.root, DAEMON_JSON, json.dumps({"registry-mirrors": [f"{B}/"]}))
    node.run(hub(A, B))
    assert order(node, "docker") == [f"{B}/", A, B]
    node.mirrors = [B, A]
    planned = node.plan(hub(A, B))
    assert (names(planned), planned["notices"]) == ([], [])
    node.mirrors = [A, B]
    assert names(node.plan(hub(A, B))) == ["Reload Docker"]
