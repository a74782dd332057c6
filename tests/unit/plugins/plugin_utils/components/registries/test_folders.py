# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Folders of hosts.toml files that the admin has chosen, in any form of TOML, or has left since."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    codes,
    names,
)
from ansible_collections.metal.gpu.tests.unit.support.carry_out import write
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.registry_machine import (
    MIRROR,
    OF_ITSELF,
    OF_NVCR,
    Machine,
)

CONFIG = "/etc/containerd/config.toml"
CRI = "plugins.'io.containerd.grpc.v1.cri'"
DUMP = f"version = 2\n[{CRI}.registry]\n  config_path = '/srv/certs'\n"
FORMS = {
    "table": f"[{CRI}.registry]\nconfig_path = '/srv/certs'\n",
    "inline table": f"[{CRI}]\nregistry = {{config_path = '/srv/certs'}}\n",
    "dotted key": f"{CRI}.registry.config_path = '/srv/certs'\n",
    "quoted key": f"[{CRI}.registry]\n\"config_path\" = '/srv/certs'\n",
    "escape": f'[{CRI}.registry]\nconfig_path = "/srv\\u002fcerts"\n',
}


@pytest.mark.parametrize("form", FORMS)
def test_folder_that_containerd_reports(machine: Callable[[str], Machine], form: str) -> None:
    """The node has no parser for TOML, and containerd writes its configuration in one form."""
    node = machine("containerd-2.4")
    write(node.root, CONFIG, f"version = 2\n{FORMS[form]}")
    (node.root / "srv/certs").mkdir(parents=True)
    before = node.tree()
    node.programs = Programs({"containerd": (0, DUMP, "")})
    node.run([OF_ITSELF])
    assert names(node.plan([OF_ITSELF])) == []
    assert "/srv/certs/registry.example/metal-gpu.key" in node.plan([OF_NVCR])["data"]["gone"]
    node.run([], state="absent")
    left = {path for path in node.tree() if path not in before}
    assert not any("registry.example" in path for path in left)


@pytest.mark.parametrize("form", FORMS)
def test_file_of_the_admin_in_that_folder(machine: Callable[[str], Machine], form: str) -> None:
    node = machine("containerd-2.4")
    write(node.root, CONFIG, f"version = 2\n{FORMS[form]}")
    text = f'[host."{MIRROR}/v2/ngc"]\ncapabilities = ["push"]\n'
    write(node.root, "/srv/certs/nvcr.io/hosts.toml", text)
    node.programs = Programs({"containerd": (0, DUMP, "")})
    assert codes(node.plan([OF_NVCR])) == ["REGISTRY_TAKEN", "REGISTRY_FILE_READABLE"]


@pytest.mark.parametrize("is_link", [False, True])
@pytest.mark.parametrize("state", ["present", "absent"])
def test_folder_that_the_admin_has_left(
    machine: Callable[[str], Machine], state: str, *, is_link: bool
) -> None:
    node = machine("containerd-2.4")
    config = f"version = 2\n[{CRI}.registry]\nconfig_path = '/srv/{{}}'\n"
    for folder in ("data/a", "srv/b", "var/lib/kubelet"):
        (node.root / folder).mkdir(parents=True)
    if is_link:
        (node.root / "srv/a").symlink_to(node.root / "data/a")
    else:
        (node.root / "srv/a").mkdir()
    write(node.root, CONFIG, config.format("b"))
    before = node.tree()
    write(node.root, CONFIG, config.format("a"))
    node.run([OF_ITSELF])
    assert names(node.plan([OF_ITSELF])) == []
    write(node.root, CONFIG, config.format("b"))
    if state == "present":
        node.run([OF_ITSELF])
        assert names(node.plan([OF_ITSELF])) == []
        assert not [*(node.root / "srv/a").iterdir()]
    node.run([], state="absent")
    assert node.tree() == before


def test_folder_of_one_registry_that_is_a_link(machine: Callable[[str], Machine]) -> None:
    """The history has its real path, which no engine reads."""
    node = machine("containerd-set")
    (node.root / "data/one").mkdir(parents=True)
    (node.root / "etc/containerd/certs.d").mkdir(parents=True)
    (node.root / "etc/containerd/certs.d/registry.example").symlink_to(node.root / "data/one")
    before = node.tree()
    node.run([OF_ITSELF])
    assert names(node.plan([OF_ITSELF])) == []
    node.run([], state="absent")
    assert {*node.tree()} - {*before} <= {"var/lib/kubelet"}


@pytest.mark.parametrize("engine", ["k3s", "RKE2", "crio", "docker"])
def test_folders_that_the_role_made_go_with_their_files(
    machine: Callable[[str], Machine], engine: str
) -> None:
    node = machine(engine)
    (node.root / "etc").mkdir(exist_ok=True)
    before = node.tree()
    node.run([OF_ITSELF])
    assert node.tree() != before
    node.run([], state="absent")
    assert node.tree() == before
