# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
import yaml

from metal_lab import facts, mirror
from metal_lab.description import DEFAULT, DEFAULT_INVENTORY, read
from metal_lab.state import State

FINGERPRINT = "0123456789ABCDEF0123456789ABCDEF01234567"
DEB = "cri-dockerd_0.4.3_amd64.deb"


@pytest.fixture
def collected(tmp_path):
    published = tmp_path / mirror.FILES["cri-dockerd"]
    published.mkdir(parents=True)
    (published / DEB).write_bytes(b"abc")
    state = State("default", gateway="172.30.0.1", programs="/cache/kubernetes")
    state.nodes = {"gpu-1": "172.30.0.11", "gpu-2": "172.30.0.12"}
    return facts.collect(state, read(DEFAULT), tmp_path, FINGERPRINT)


def test_facts_are_json(collected):
    assert json.loads(json.dumps(collected)) == collected


def test_mirror(collected):
    found, url = collected["mirror"], "http://172.30.0.1:8080"
    assert found["repositories"]["nvidia-debian13"] == {
        "url": f"{url}/nvidia/debian13/x86_64",
        "key": f"{url}/nvidia/debian13/x86_64/01234567.pub",
    }
    assert set(found["untrusted"]) == {"expired", "stranger"}
    assert found["files"]["cri-dockerd"] == {
        "url": f"{url}/{mirror.FILES['cri-dockerd']}/{DEB}",
        "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    }


def test_nodes(collected):
    node = collected["nodes"]["gpu-2"]
    assert (node["address"], node["os"], node["gpus"]) == ("172.30.0.12", "debian13", 4)
    assert node["ssh"][-1] == "admin@172.30.0.12"
    assert node["images"] == "registry"


def test_laboratory_has_a_registry_only_if_asked(collected):
    assert collected["registry"] == {}
    assert collected["mirror_tools"] == ""


def test_default_inventory_has_all_nodes_and_their_login(collected):
    group = yaml.safe_load(facts.render(DEFAULT_INVENTORY, collected))["all"]
    assert {name: host["ansible_host"] for name, host in group["hosts"].items()} == {
        "gpu-1": "172.30.0.11",
        "gpu-2": "172.30.0.12",
    }
    assert group["vars"]["ansible_user"] == "admin"
    assert group["vars"]["ansible_ssh_private_key_file"] == collected["ssh"]["key"]


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ nodes.gpu_9.address }}", "has no attribute 'gpu_9'"),
        ("{{ unknown }}", "'unknown' is undefined"),
        ("{% for %}", "Expected"),
    ],
)
def test_wrong_template_is_named_with_the_reason(tmp_path, collected, template, reason):
    path = tmp_path / "inventory.j2"
    path.write_text(template)
    with pytest.raises(SystemExit, match=reason) as caught:
        facts.render(path, collected)
    assert str(path) in str(caught.value)
