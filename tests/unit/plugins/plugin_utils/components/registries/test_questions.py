# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which servers does a node ask before a change, and with which login?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries import content
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    merge,
)
from ansible_collections.metal.gpu.tests.unit.support.registry_machine import (
    CA,
    CLIENT,
    HUB,
    KEY,
    MIRROR,
    OF_ITSELF,
    OF_NVCR,
    SECRET,
    Machine,
)


def asked(planned: dict[str, Any], hosts: list[Any]) -> dict[str, tuple[str, bool]]:
    """Return the user by the address that the node asks, and whether the login is Basic only."""
    found = content.questions(hosts, planned["data"]["target"])
    return {str(one["url"]): (str(one["username"]), bool(one["basic_only"])) for one in found}


def test_questions_to_registries(machine: Callable[[str], Machine]) -> None:
    """As the engine will ask: Docker's own image store sends the login of docker.io to mirrors."""
    of_hub = {**HUB, "username": "me", "password": SECRET}
    mirror, hub = f"{MIRROR}/v2/", "https://registry-1.docker.io/v2/"
    node = machine("docker")
    assert asked(node.plan([of_hub]), [of_hub]) == {mirror: ("me", False)}
    node._node = merge(node._node, {"engines": {"docker": {"storage_driver": "overlayfs"}}})
    expected = {mirror: ("", False), hub: ("me", False)}
    assert asked(node.plan([of_hub]), [of_hub]) == expected
    target = node.plan([of_hub])["data"]["target"]
    assert {one["ca"] for one in content.questions([of_hub], target)} == {CA, CA.strip()}
    # The folder docker.io of containerd's image store has the client certificate of a mirror, too.
    pair = {"client_certificate": CLIENT, "client_key": KEY}
    both = {**of_hub, "mirrors": [{**HUB["mirrors"][0], **pair}]}
    assert {one["certificate"] for one in content.questions([both], target)} == {CLIENT}
    assert {one["key"] for one in content.questions([both], target)} == {KEY}


@pytest.mark.parametrize(
    ("engine", "basic_only"),
    [("containerd-1.7", True), ("containerd-2.1", False), ("containerd-2.4", False)],
)
def test_containerd_gets_tokens_with_the_login_of_a_mirror_from_2_1_on(
    machine: Callable[[str], Machine], engine: str, basic_only: bool
) -> None:
    hosts, node = [OF_NVCR, OF_ITSELF], machine(engine)
    assert asked(node.plan(hosts), hosts) == {
        f"{MIRROR}/v2/": ("me", basic_only),
        "http://second.example/v2/": ("", basic_only),
        "https://registry.example/v2/": ("me", False),
    }


@pytest.mark.parametrize("engine", ["containerd-2.4", "crio"])
def test_registry_that_must_not_be_asked_is_not_asked(
    machine: Callable[[str], Machine], engine: str
) -> None:
    of_hub = {**HUB, "username": "me", "password": SECRET}
    node = machine(engine)
    hosts = [of_hub]
    assert {*asked(node.plan(hosts), hosts)} == {
        f"{MIRROR}/v2/",
        "https://registry-1.docker.io/v2/",
    }
    hosts = [{**of_hub, "fallback": False}]
    assert {*asked(node.plan(hosts), hosts)} == {f"{MIRROR}/v2/"}


def test_server_with_and_without_tls_is_asked_in_both_ways(
    machine: Callable[[str], Machine],
) -> None:
    urls = {"docker.io": "http://m.example:5000", "nvcr.io": "https://m.example:5000"}
    hosts = [{"host": name, "mirrors": [{"url": url}]} for name, url in urls.items()]
    planned = machine("containerd-2.4").plan(hosts)
    assert {*asked(planned, hosts)} == {f"{url}/v2/" for url in urls.values()}
