# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings of containerd that keep the role registries from writing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    codes,
    merge,
)
from ansible_collections.metal.gpu.tests.unit.support.carry_out import write
from ansible_collections.metal.gpu.tests.unit.support.registry_machine import (
    CA,
    HUB,
    K3S,
    MIRROR,
    OF_ITSELF,
    OF_NVCR,
    Machine,
    Observe,
    of_containerd,
)


def test_containerd_that_has_mirrors_in_its_own_file(tmp_path: Path, observe: Observe) -> None:
    node = Machine(tmp_path, observe, "containerd-1.7")
    node._node = of_containerd("1.7.24", mirrors=["nvcr.io"], tls=["mirror.example"])
    (refusal,) = node.plan([OF_NVCR])["refusals"]
    assert refusal["code"] == "REGISTRY_CONFLICT"
    assert "nvcr.io, mirror.example (tls)" in refusal["message"]


def test_list_of_folders_of_the_admin_that_containerd_does_not_read(
    tmp_path: Path, observe: Observe
) -> None:
    node = Machine(tmp_path, observe, "containerd-2.4")
    node._node = of_containerd("2.4.2", folders=["/srv/a", "/srv/b"])
    (refusal,) = node.plan([OF_NVCR])["refusals"]
    assert refusal["code"] == "REGISTRY_PATHS_UNREAD"
    assert "/srv/a:/srv/b" in refusal["message"]
    node._node = of_containerd("2.4.2", folders=["/srv/a", "/srv/b"], reads_lists=True)
    planned = node.plan([OF_NVCR])
    assert planned["refusals"] == []
    assert planned["data"]["target"]["folders"] == {"nvcr.io": "/srv/a/nvcr.io"}


BOTH = "/etc/containerd/certs.d:/etc/docker/certs.d"
IMPORTED = "/etc/containerd/conf.d"


@pytest.mark.parametrize(
    ("imports", "named", "expected"),
    [
        pytest.param(["conf.d/*.toml"], {"99-registry.toml": BOTH}, True, id="later by name"),
        pytest.param(["conf.d/*.toml"], {"50-registry.toml": BOTH}, False, id="earlier by name"),
        pytest.param(["conf.d/50.toml"], {"50.toml": BOTH}, True, id="after the main file"),
        pytest.param(["conf.d/*.toml"], {"99-registry.toml": ""}, True, id="later and empty"),
    ],
)
def test_imported_file_whose_folders_would_count_more_than_ours(
    tmp_path: Path, observe: Observe, imports: list[str], named: dict[str, str], *, expected: bool
) -> None:
    """Without a refusal, each run writes config_path and restarts containerd."""
    found = {f"{IMPORTED}/{name}": text for name, text in named.items()}
    config = {"version": 3, "imports": imports, "imported_folders": found}
    node = Machine(tmp_path, observe, "containerd-2.4")
    folders = [one for text in named.values() for one in text.split(":") if one]
    node._node = merge(
        of_containerd("2.4.2", folders=folders), {"engines": {"containerd": {"config": config}}}
    )
    planned = node.plan([OF_NVCR])
    assert codes(planned) == ["REGISTRY_PATHS_UNREAD"] * expected
    assert all(next(iter(found)) in one["message"] for one in planned["refusals"])


def test_list_of_folders_in_an_imported_file_is_named(tmp_path: Path, observe: Observe) -> None:
    path = f"{IMPORTED}/50-site.toml"
    config = {"imports": ["conf.d/*.toml"], "imported_folders": {path: "/srv/a:/srv/b"}}
    node = Machine(tmp_path, observe, "containerd-2.4")
    node._node = merge(
        of_containerd("2.4.2", folders=["/srv/a", "/srv/b"]),
        {"engines": {"containerd": {"config": config}}},
    )
    (refusal,) = node.plan([OF_NVCR])["refusals"]
    assert f"{path} has the config_path /srv/a:/srv/b" in refusal["message"]


def test_k0s_reads_no_folder_until_somebody_tells_it(tmp_path: Path, observe: Observe) -> None:
    k0s = {**K3S, "name": "k0s", "unit": "k0sworker.service"}
    node = Machine(tmp_path, observe, "containerd-1.7")
    node._node = merge(of_containerd("1.7.24"), {"engines": {"containerd": {"home": k0s}}})
    assert codes(node.plan([{**OF_NVCR}])) == ["REGISTRY_PATH_UNSET"]
    assert codes(node.plan([OF_ITSELF])) == ["REGISTRY_UNSUPPORTED", "REGISTRY_PATH_UNSET"]
    folder = "/etc/k0s/containerd.d/certs.d"  # of the example of k0s
    told = of_containerd("2.4.2", folders=[folder])
    node._node = merge(told, {"engines": {"containerd": {"home": k0s}}})
    planned = node.plan([OF_NVCR])
    assert planned["refusals"] == []
    assert planned["data"]["target"]["folders"] == {"nvcr.io": f"{folder}/nvcr.io"}


# As Kubespray v2.29.1 to v2.31.0 writes it for docker.io, by its default.
KUBESPRAY = """server = "https://docker.io"
[host."https://registry-1.docker.io"]
  capabilities = ["pull", "resolve"]
  skip_verify = false
  override_path = false
"""
OF_HUB = "/etc/containerd/certs.d/docker.io/hosts.toml"
OWN_MIRROR = f"""[host."{MIRROR}"]
capabilities = ["pull", "resolve"]
"""


@pytest.mark.parametrize(
    ("text", "hub", "expected"),
    [
        pytest.param(KUBESPRAY, HUB, ["REGISTRY_FIRST"], id="the registry itself"),
        pytest.param(
            f'[host."docker.io/"]\ncapabilities = ["pull"]\n{OWN_MIRROR}',
            HUB,
            ["REGISTRY_FIRST"],
            id="the registry by its name, before the mirror",
        ),
        pytest.param(OWN_MIRROR + KUBESPRAY.partition("\n")[2], HUB, [], id="after the mirror"),
        pytest.param(
            OWN_MIRROR + KUBESPRAY.partition("\n")[2],
            {**HUB, "fallback": False},
            ["REGISTRY_FIRST"],
            id="after the mirror, without fallback",
        ),
        pytest.param(
            KUBESPRAY.replace("registry-1.docker.io", "own.example"), HUB, [], id="another mirror"
        ),
    ],
)
def test_registry_that_containerd_would_ask_before_its_mirrors(
    machine: Callable[[str], Machine], text: str, hub: dict[str, Any], expected: list[str]
) -> None:
    node = machine("containerd-set")
    write(node.root, OF_HUB, text, 0o640)
    found = node.plan([hub])["refusals"]
    assert [one["code"] for one in found] == expected
    assert all(f"{OF_HUB} names " in one["message"] for one in found)


def test_registry_of_the_role_itself_is_no_obstacle(machine: Callable[[str], Machine]) -> None:
    node = machine("containerd-set")
    node.run([{"host": "registry.example", "ca": CA}])
    node.run([{"host": "registry.example", "ca": CA, "mirrors": [{"url": MIRROR}]}])
    assert node.plan([{"host": "registry.example", "ca": CA}])["refusals"] == []
