# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metal_lab import nodes, registry, registry_faults, state
from metal_lab.description import Node
from metal_lab.registry_content import sha256

IMAGE = "nvcr.io/nvidia/cuda:1"
LAYER = b"some layer"
KNOWN = {"digest": "sha256:right", "foreign": "sha256:foreign", "layer": sha256(LAYER)}


@pytest.fixture
def laboratory(monkeypatch, tmp_path):
    """Return the state of a laboratory with a storage, and no process."""
    monkeypatch.setattr(state, "FOLDER", tmp_path / "labs")
    content = tmp_path / "content"
    root = content / "docker/registry/v2"
    for repository in ("nvidia/cuda", "nvcr.io/nvidia/cuda"):
        tag = root / "repositories" / repository / "_manifests/tags/1/current"
        tag.mkdir(parents=True)
        (tag / "link").write_text(KNOWN["digest"])
    _algorithm, _, name = KNOWN["layer"].partition(":")
    (root / "blobs/sha256" / name[:2] / name).mkdir(parents=True)
    (root / "blobs/sha256" / name[:2] / name / "data").write_bytes(LAYER)
    (content / "images.json").write_text(json.dumps({IMAGE: KNOWN}))
    made = state.State("default", registry="/program", registry_content=str(content))
    storage = registry.storage(made)
    storage.parent.mkdir(parents=True)
    storage.symlink_to(content)
    return made


def _links(laboratory) -> set[str]:
    root = registry.storage(laboratory) / "docker/registry/v2/repositories"
    return {path.read_text() for path in root.rglob("_manifests/tags/1/current/link")}


def test_hosts_are_upstreams(laboratory):
    assert registry.hosts(laboratory) == ["nvcr.io"]


def test_docker_asks_for_images_of_docker_io_at_another_name(laboratory):
    known = {IMAGE: KNOWN, "docker.io/library/busybox:1.35": KNOWN}
    (Path(laboratory.registry_content) / "images.json").write_text(json.dumps(known))
    assert registry.hosts(laboratory) == ["docker.io", "nvcr.io"]
    assert registry.names(laboratory) == ["registry-1.docker.io", "nvcr.io"]


def test_facts_are_what_a_client_needs(laboratory):
    laboratory.gateway = "172.30.0.1"
    place = registry.folder(laboratory)
    registry._write_certificates(place, ["172.30.0.1"])
    registry._write_secret(place / "password", "secret")
    known = registry.facts(laboratory)
    assert known["url"] == "https://172.30.0.1"
    assert known["password"] == "secret"
    assert known["digests"] == {IMAGE: KNOWN["digest"]}
    assert known["ca"].startswith("-----BEGIN CERTIFICATE-----\n")
    assert known["client_key"].startswith("-----BEGIN PRIVATE KEY-----\n")


@pytest.mark.parametrize(
    ("engine", "images", "expected"),
    [
        pytest.param("containerd", "registry", [], id="finds the registry by its mirrors"),
        pytest.param("docker", "loaded", [], id="needs no registry"),
        *(
            pytest.param("docker", images, ["--add-host=nvcr.io:172.30.0.1"], id=f"names-{images}")
            for images in ("registry", "busybox", "names")
        ),
        pytest.param(
            "containerd", "names", ["--add-host=nvcr.io:172.30.0.1"], id="names-docker-later"
        ),
    ],
)
def test_names_of_nodes(laboratory, engine, images, expected):
    laboratory.gateway = "172.30.0.1"
    node = Node("gpu-1", "debian12", "t4x1", engine, images=images)
    assert nodes._names(laboratory, node) == expected


@pytest.mark.parametrize(
    ("images", "expected"),
    [("loaded", ("",)), ("busybox", nodes.BEFORE), ("names", ()), ("registry", ())],
)
def test_archives_of_nodes(images, expected):
    assert nodes._archives(Node("gpu-1", "debian12", "t4x1", images=images)) == expected


def test_foreign_image(laboratory):
    registry_faults.inject(laboratory, "foreign-image", [IMAGE])
    assert _links(laboratory) == {KNOWN["foreign"]}


def test_missing_image(laboratory):
    for _repeated in range(2):
        registry_faults.inject(laboratory, "missing-image", [IMAGE])
    assert _links(laboratory) == set()


def test_corrupt_image_has_the_same_size(laboratory):
    registry_faults.inject(laboratory, "corrupt-image", [IMAGE])
    (blob,) = registry.storage(laboratory).rglob("data")
    assert len(blob.read_bytes()) == len(LAYER)
    assert sha256(blob.read_bytes()) != KNOWN["layer"]


def test_wrong_password(laboratory):
    htpasswd = registry.folder(laboratory) / "htpasswd"
    registry.set_password(laboratory, "old")
    old = htpasswd.read_text()
    registry_faults.inject(laboratory, "wrong-password", [])
    user, _, hashed = htpasswd.read_text().partition(":")
    assert user == registry.USER
    assert hashed not in old


def test_list_names_all(laboratory):
    lines = registry_faults.inject(laboratory, "list", []).splitlines()
    assert [line.split()[0] for line in lines] == list(registry_faults.FAULTS)


@pytest.mark.parametrize(
    ("fault", "arguments", "message"),
    [
        ("flood", [], "no fault 'flood'; to list the faults: lab fault registry list"),
        ("corrupt-image", [], "wrong number of arguments: corrupt-image IMAGE"),
        ("down", ["now"], "wrong number of arguments: down"),
        ("slow", ["very"], "'very' is not a number of seconds"),
        ("missing-image", ["busybox"], f"no image 'busybox' in the registry; it has:\n{IMAGE}"),
    ],
)
def test_mistakes_are_named(laboratory, fault, arguments, message):
    with pytest.raises(SystemExit, match=message):
        registry_faults.inject(laboratory, fault, arguments)


def test_laboratory_without_a_registry_says_how_to_get_one():
    with pytest.raises(SystemExit, match="has no registry; to get one"):
        registry_faults.inject(state.State("default"), "down", [])
