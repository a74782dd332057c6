# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Logins of the admin that a file of logins of the role would hide."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.registries import (
    DEFAULT_LOGINS,
    KUBELET_LOGIN,
    LOGINS_OF_KUBELET,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    codes,
    merge,
    names,
)
from ansible_collections.metal.gpu.tests.unit.support.carry_out import write
from ansible_collections.metal.gpu.tests.unit.support.registry_machine import (
    CA,
    HUB,
    OF_ITSELF,
    Machine,
)


@pytest.mark.parametrize("path", DEFAULT_LOGINS)
@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        pytest.param('{"auths": {"quay.io": {"auth": "eA=="}}}', "quay.io", id="a login"),
        pytest.param('{"credHelpers": {"quay.io": "pass"}}', "quay.io", id="a helper"),
        pytest.param('{"auths": {"quay.io": {}}, "credsStore": "pass"}', None, id="no login"),
        pytest.param(
            '{"credHelpers": {"quay.io": "pass"}, "credsStore": "pass"}', "quay.io", id="both"
        ),
        pytest.param('{"auths": {"registry.example": {"auth": "eA=="}}}', None, id="ours, too"),
        pytest.param(
            '{"auths": {"https://index.docker.io/v1/": {"auth": "eA=="}}}', "docker.io", id="hub"
        ),
    ],
)
def test_logins_of_the_admin_that_crio_would_no_longer_read(
    machine: Callable[[str], Machine], path: str, text: str, hidden: str | None
) -> None:
    node = machine("crio")
    write(node.root, path, text, 0o600)
    planned = node.plan([OF_ITSELF])
    assert codes(planned) == ["REGISTRY_LOGINS_HIDDEN"] * bool(hidden)
    assert all(f"{path} has logins of {hidden}," in one["message"] for one in planned["refusals"])
    # CRI-O reads this file by name, and the role adds to it.
    crio = {"engines": {"crio": {"auth_file": "/etc/crio/mine.json"}}}
    node._node = merge(node._node, crio)
    assert codes(node.plan([OF_ITSELF])) == []


def test_logins_of_the_admin_stay_where_none_of_ours_is_written(
    machine: Callable[[str], Machine],
) -> None:
    node = machine("crio")
    write(node.root, DEFAULT_LOGINS[0], '{"auths": {"quay.io": {"auth": "eA=="}}}', 0o600)
    assert codes(node.plan([HUB])) == []
    assert codes(node.plan([{"host": "registry.example", "ca": CA}])) == []


@pytest.mark.parametrize("path", LOGINS_OF_KUBELET)
@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        pytest.param('{"auths": {"quay.io": {"auth": "eA=="}}}', "quay.io", id="a login"),
        pytest.param('{"auths": {"registry.example": {"auth": "eA=="}}}', None, id="ours, too"),
        pytest.param('{"credHelpers": {"quay.io": "pass"}}', None, id="a helper"),
        pytest.param("no json", None, id="of another program"),
    ],
)
def test_logins_of_the_admin_that_the_kubelet_would_no_longer_read(
    machine: Callable[[str], Machine], path: str, text: str, hidden: str | None
) -> None:
    node = machine("containerd-2.4")
    write(node.root, path, text, 0o600)
    planned = node.plan([OF_ITSELF])
    assert codes(planned) == ["KUBELET_LOGINS_HIDDEN"] * bool(hidden)
    assert all(f"{path} has logins of {hidden}," in one["message"] for one in planned["refusals"])
    # The kubelet reads this file already, and no other.
    write(node.root, KUBELET_LOGIN, "{}", 0o600)
    assert codes(node.plan([OF_ITSELF])) == []


@pytest.mark.parametrize("engine", ["containerd-2.4", "docker"])
def test_login_of_root_is_only_noticed_because_a_kubelet_seldom_has_a_home(
    machine: Callable[[str], Machine], engine: str
) -> None:
    """Once: the next run finds the file of the role."""
    node = machine(engine)
    write(node.root, "/root/.docker/config.json", '{"auths": {"quay.io": {"auth": "eA=="}}}', 0o600)
    (notice,) = node.run([OF_ITSELF])["notices"]
    assert notice["code"] == "KUBELET_LOGINS_OF_ROOT"
    assert "has logins of quay.io," in notice["message"]
    assert (names(node.plan([OF_ITSELF])), node.plan([OF_ITSELF])["notices"]) == ([], [])


def test_logins_of_the_kubelet_stay_where_none_of_ours_is_written(
    machine: Callable[[str], Machine],
) -> None:
    for engine, hosts in (("containerd-2.4", [HUB]), ("crio", [OF_ITSELF])):
        node = machine(engine)
        write(node.root, "/config.json", '{"auths": {"quay.io": {"auth": "eA=="}}}', 0o600)
        assert codes(node.plan(hosts)) == []
