# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A mirror has what apt and dnf are told to fetch: the reviewed calls of tests/unit/golden."""

from __future__ import annotations

from typing import Any, cast

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import plan as docker
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import Call
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import (
    DEBIAN,
    SYSTEMS,
    System,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict import mirror
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.mirror import (
    File,
    Host,
    Listing,
)
from ansible_collections.metal.gpu.tests.unit.golden.nodes import CARDS, ROOT, node, variables
from ansible_collections.metal.gpu.tests.unit.golden.test_packages import (
    CRI_DOCKERD,
    plans,
    sections,
)
from ansible_collections.metal.gpu.tests.unit.support import records

MIRROR, REGISTRY = "https://mirror.example/all", "mirror.example"
SOURCES = {"ansible.builtin.deb822_repository": "uris", "ansible.builtin.yum_repository": "baseurl"}
ALL = {"ids": lambda one: f"{one.id}-{one.version}"}


def host(name: str, family: str, **plans: Any) -> Host:
    values = {**CRI_DOCKERD[family]}
    return Host(name, family, plans, values, {"verify_docker_image": "nvcr.io/nvidia/x:1"})


def listed(system: System) -> dict[str, Listing]:
    """Return what each plan of a virgin node fetches, by the heading of the golden text."""
    return {
        heading: mirror.collect([host("gpu-1", system.family, **{role: plan})], MIRROR, REGISTRY)
        for heading, role, plan in plans(system)
    }


def installed(call: Call) -> list[str]:
    """Return the packages that a call installs; dnf is called as a program."""
    if call.module == "ansible.builtin.apt":
        return list(call.options.get("name", ()))
    argv = call.options.get("argv", [])
    is_dnf = call.module == "ansible.builtin.command" and {"dnf", "--assumeyes"} <= {*argv}
    names = argv[argv.index("install") + 1 :] if is_dnf and "install" in argv else []
    return [name for name in names if not name.startswith("/")]  # a file: cri-dockerd


def called(system: System) -> dict[str, tuple[set[str], set[str]]]:
    """Return the packages that apt or dnf installs for each plan, and the repositories' URLs."""
    found = {}
    for heading, steps in sections(system):
        if heading == "other operations":
            continue
        calls = [call for _title, calls in steps for call in calls]
        names = {name for call in calls for name in installed(call)}
        urls = {call.options[SOURCES[call.module]] for call in calls if call.module in SOURCES}
        found[heading] = names, urls
    return found


@pytest.mark.parametrize("system", SYSTEMS, **ALL)
def test_mirror_has_what_apt_and_dnf_are_told_to_install(system: System) -> None:
    expected = called(system)
    for heading, listing in listed(system).items():
        of_roles = {name for packages in listing.repositories.values() for name in packages}
        assert {*of_roles, *listing.archive} == expected[heading][0], heading


@pytest.mark.parametrize("system", SYSTEMS, **ALL)
def test_mirror_has_the_repositories_that_are_added(system: System) -> None:
    expected = called(system)
    for heading, listing in listed(system).items():
        urls = {one.url for one in listing.repositories}
        if heading.endswith("source distribution"):
            assert urls == set()  # the archive of the system itself
        else:
            assert urls == expected[heading][1], heading


@pytest.mark.parametrize("system", SYSTEMS, **ALL)
def test_addresses_are_recorded_ones(system: System) -> None:
    known = {str(value) for row in records.rows() if row.what == "address" for value in row.values}
    addresses = {one.url for found in listed(system).values() for one in found.repositories}
    assert addresses
    assert {one for one in addresses if one not in known} == set()


@pytest.mark.parametrize("system", SYSTEMS, **ALL)
def test_keys_are_files_with_their_fingerprints(system: System) -> None:
    for heading, listing in listed(system).items():
        for repository in listing.repositories:
            host_name = repository.url.split("/")[2]
            keys = [one for one in listing.files if one.url.split("/")[2] == host_name]
            assert keys, heading
            assert all(one.fingerprint for one in keys if not one.sha256)


def test_variables_lead_to_the_mirror() -> None:
    system = next(one for one in SYSTEMS if one.family == DEBIAN)
    found = listed(system)["containerd"].variables["gpu-1"]
    address = "https://mirror.example/all/download.docker.com/linux/debian"
    assert found["containerd_repository_url"].rstrip("/") == address
    assert found["containerd_repository_key"] == f"{address}/gpg"


def test_hosts_that_have_everything_fetch_nothing_but_images() -> None:
    done = {
        "steps": [],
        "refusals": [],
        "notices": [],
        "data": {"repository": {"url": "https://x"}},
    }
    found = mirror.collect([host("gpu-1", DEBIAN, containerd=done)], MIRROR, REGISTRY)
    assert found == Listing(
        {},
        {},
        {},
        {"nvcr.io/nvidia/x:1": ["gpu-1"]},
        {"gpu-1": {"verify_docker_image": "mirror.example/nvcr.io/nvidia/x:1"}},
    )


def test_what_several_hosts_fetch_is_listed_once() -> None:
    system = next(one for one in SYSTEMS if one.family == DEBIAN)
    plan = next(plan for heading, _role, plan in plans(system) if heading == "containerd")
    hosts = [host(name, DEBIAN, containerd=plan) for name in ("gpu-1", "gpu-2")]
    found = mirror.describe(mirror.collect(hosts, MIRROR, REGISTRY))
    (repository,) = found["repositories"]
    assert all(names == ["gpu-1", "gpu-2"] for names in repository["packages"].values())
    assert found["images"] == {"nvcr.io/nvidia/x:1": ["gpu-1", "gpu-2"]}


def test_credentials_are_in_no_list() -> None:
    step = {"slug": "repository", "name": "", "reason": ""}
    repository = {
        **{"url": "https://reader:canary@x.example/deb", "suite": "/", "components": ""},
        **{"key": "https://reader:canary@x.example/key", "fingerprint": "0" * 40},
    }
    plan = {"steps": [step], "data": {"repository": repository}}
    found = mirror.collect([host("gpu-1", DEBIAN, containerd=plan)], MIRROR, REGISTRY)
    assert "canary" not in str(mirror.describe(found))


def machine(*, kubelet: bool, docker: bool = False) -> Node:
    found = node(SYSTEMS[0], engines.DOCKER, CARDS[0], has_engine=docker)
    found["kubelet"] = {**found["kubelet"], "installed": kubelet}
    return cast(Node, found)


def defaults() -> dict[str, str]:
    found: dict[str, str] = {}
    for role in ("device_plugin", "verify"):
        path = ROOT / "roles" / role / "defaults" / "main.yml"
        found |= yaml.safe_load(path.read_text())
    return found


@pytest.mark.parametrize(
    ("kubelet", "changes", "expected"),
    [
        (True, {}, ["nvcr.io/nvidia/k8s-device-plugin:v0.20.0", "vectoradd-cuda12.5.0"]),
        (True, {"device_plugin_image": "m/p@sha256:1"}, ["m/p@sha256:1", "vectoradd"]),
        (True, {"verify_compute_image": "own:1"}, ["k8s-device-plugin", "own:1"]),
        (True, {"verify_level": "list"}, ["k8s-device-plugin", "nvidia/cuda:"]),
        (True, {"verify_level": "exchange"}, ["k8s-device-plugin", "vectoradd", "nvbandwidth"]),
        (False, {"verify_docker_image": "app@sha256:1"}, ["app@sha256:1"]),
    ],
)
def test_images_are_those_of_the_run(kubelet, changes, expected) -> None:
    values = {**defaults(), **changes}
    images = mirror.images(values, machine(kubelet=kubelet), engines.DOCKER)
    assert len(images) == len(expected)
    pairs = zip(expected, images.values(), strict=True)
    assert all(words in image for words, image in pairs)


def test_images_of_a_node_whose_kubelet_is_still_to_come() -> None:
    images = mirror.images(defaults(), machine(kubelet=False), engines.CONTAINERD)
    assert list(images) == ["device_plugin_image", "verify_compute_image"]


@pytest.mark.parametrize(
    ("desired", "docker", "kubelet", "expected"),
    [
        ("auto", False, False, ["KUBELET_MISSING"]),
        ("", False, False, ["KUBELET_MISSING"]),
        ("docker", False, False, []),
        ("containerd", False, False, []),
        ("auto", True, False, []),
        ("auto", False, True, []),
    ],
)
def test_inventory_says_what_a_bare_machine_becomes(desired, docker, kubelet, expected) -> None:
    refusals = mirror.refusals("gpu-1", machine(docker=docker, kubelet=kubelet), desired)
    assert [one["code"] for one in refusals] == expected


@pytest.mark.parametrize(
    ("value", "image", "expected"),
    [
        ("nvcr.io/x/plugin", "nvcr.io/x/plugin:v1", f"{REGISTRY}/nvcr.io/x/plugin"),
        ("nvcr.io/x/plugin:v2", "nvcr.io/x/plugin:v2", f"{REGISTRY}/nvcr.io/x/plugin:v2"),
        ("plugin@sha256:1", "plugin@sha256:1", f"{REGISTRY}/docker.io/library/plugin@sha256:1"),
        # No program accepts a port in the middle of a name.
        ("own:5000/p:1", "own:5000/p:1", f"{REGISTRY}/own/p:1"),
    ],
)
def test_variables_name_the_images_of_the_registry(value, image, expected) -> None:
    variable = "device_plugin_image"
    one = Host("gpu-1", DEBIAN, {}, {variable: value}, {variable: image})
    found = mirror.collect([one], MIRROR, REGISTRY)
    assert found.variables == {"gpu-1": {variable: expected}}


def test_images_that_differ_between_hosts_are_no_variable() -> None:
    variable = "verify_compute_image"
    hosts = [Host(name, DEBIAN, {}, {}, {variable: f"x:{name}"}) for name in ("a", "b")]
    found = mirror.collect(hosts, MIRROR, REGISTRY)
    assert found.images == {"x:a": ["a"], "x:b": ["b"]}
    assert found.variables == {}


def test_what_two_roles_of_a_host_fetch_is_listed_once() -> None:
    system = next(one for one in SYSTEMS if one.family == DEBIAN)
    both = {role: plan for heading, role, plan in plans(system) if "," not in heading}
    found = mirror.collect([host("gpu-1", DEBIAN, **both)], MIRROR, REGISTRY)
    assert found.archive["python3-debian"] == ["gpu-1"]


def test_run_file_and_cri_dockerd() -> None:
    found = node(SYSTEMS[0], engines.DOCKER, CARDS[0], has_engine=False)
    made = docker.plan(found, variables("docker_ce", **CRI_DOCKERD[DEBIAN]))
    values = {"docker_ce_cri_dockerd_checksum": f"sha256:{'c' * 64}"}
    listing = mirror.collect(
        [Host("gpu-1", DEBIAN, {"docker_ce": made}, values, {})], MIRROR, REGISTRY
    )
    url = CRI_DOCKERD[DEBIAN]["cri_dockerd_url"]
    assert File(url, sha256="c" * 64) in listing.files
    runfile = {"steps": [{"slug": "runfile"}], "data": {}}
    values = {"nvidia_driver_runfile_url": "https://x/a.run", "nvidia_driver_runfile_sha256": "d"}
    listing = mirror.collect(
        [Host("gpu-1", DEBIAN, {"nvidia_driver": runfile}, values, {})], MIRROR, REGISTRY
    )
    assert listing.files == {File("https://x/a.run", "d"): ["gpu-1"]}
    assert listing.variables["gpu-1"] == {"nvidia_driver_runfile_url": f"{MIRROR}/x/a.run"}


@pytest.mark.parametrize(
    ("checksum", "files", "expected"),
    [
        (f"sha256:{'c' * 64}", {"c" * 64}, None),
        (
            "sha256:https://x.example/SHA256SUMS",
            {""},
            f"sha256:{MIRROR}/x.example/SHA256SUMS",
        ),
        ("", {""}, None),
    ],
)
def test_checksum_of_cri_dockerd(checksum, files, expected) -> None:
    found = node(SYSTEMS[0], engines.DOCKER, CARDS[0], has_engine=False)
    made = docker.plan(found, variables("docker_ce", **CRI_DOCKERD[DEBIAN]))
    name = "docker_ce_cri_dockerd_checksum"
    one = Host("gpu-1", DEBIAN, {"docker_ce": made}, {name: checksum}, {})
    listing = mirror.collect([one], MIRROR, REGISTRY)
    url = CRI_DOCKERD[DEBIAN]["cri_dockerd_url"]
    assert {file.sha256 for file in listing.files if file.url == url} == files
    assert listing.variables["gpu-1"].get(name) == expected
    if expected:
        assert File("https://x.example/SHA256SUMS") in listing.files


def test_driver_that_is_a_file_of_the_node_is_not_fetched() -> None:
    runfile = {"steps": [{"slug": "runfile"}], "data": {}}
    values = {"nvidia_driver_runfile_url": "file:///opt/driver.run"}
    one = Host("gpu-1", DEBIAN, {"nvidia_driver": runfile}, values, {})
    listing = mirror.collect([one], MIRROR, REGISTRY)
    assert (listing.files, listing.variables) == ({}, {})
