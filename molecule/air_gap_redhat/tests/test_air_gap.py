# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines with dnf whose vendors are out of reach.

lose_the_internet.yml has followed docs/air-gap.md. gpu-1 is a node of the cluster with Rocky Linux
9, gpu-2 a Docker host with Rocky Linux 10.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from air_gap import USER, AirGap

PLAYBOOKS = {"gpu-1": "metal.gpu.site", "gpu-2": "metal.gpu.docker_hosts"}
# The last cells of each node in the table of its playbook.
PROVEN = {"gpu-1": r"(\s+4){5}\s+4/4\s+ok\b", "gpu-2": r"\s1/1\s+ok\b"}
# Besides the observation, a Docker host carries out the two scripts of the proof.
OPERATIONS_ALLOWED = {"gpu-1": 1, "gpu-2": 3}
IMAGES = {
    "gpu-1": ("nvidia/k8s-device-plugin", "nvidia/k8s/cuda-sample"),
    "gpu-2": ("nvidia/k8s/cuda-sample",),
}
BOTH = ("nvidia-container-toolkit", "nvidia-driver-cuda-libs")
PACKAGES = {
    "gpu-1": (*BOTH, "kmod-nvidia-latest-dkms"),
    "gpu-2": (*BOTH, "kmod-nvidia-open-dkms", "docker-ce", "containerd.io"),
}


@pytest.fixture(scope="module")
def gap(laboratory: Any) -> AirGap:
    return AirGap(laboratory.name)


def run_again(laboratory: Any, gap: AirGap, node: str, *options: str) -> Any:
    option, inventory = gap.inventories
    words = (option, "-e", f"metal_gpu_hosts={node}", *options)
    return laboratory.playbook(PLAYBOOKS[node], *words, inventory=inventory)


def test_second_run_changes_nothing_and_every_gpu_is_proven(laboratory, gap, node):
    run = run_again(laboratory, gap, node, "-vvv")
    assert run.returncode == 0
    assert node in run.unchanged
    assert re.search(rf"{node} .*?{PROVEN[node]}", run.output)
    count = run.operations()[laboratory.addresses[node]]
    assert 0 < count <= OPERATIONS_ALLOWED[node]
    print(f"\n{node}: {count} remote operations, {OPERATIONS_ALLOWED[node]} allowed", end=" ")


def test_check_announced_what_converge_did(check_and_converge):
    check, converge = check_and_converge
    assert {host for host, _step in check.announced} == {"gpu-1", "gpu-2"}
    assert check.announced == converge.announced
    assert check.announced <= converge.ran


def test_packages_are_those_of_the_mirror(laboratory, gap, node):
    """Each node asks the archive of its distribution and the mirror, and nobody else."""
    text = laboratory.host(node).check_output("cat /etc/yum.repos.d/*.repo")
    addresses = set(re.findall(r"^baseurl *= *(\S+)$", text, re.M))
    internet, place = laboratory.facts["mirror"]["url"], f"{gap.mirror}/{gap.state.gateway}"
    of_archive = tuple(f"{internet}/{folder}/" for folder in gap.archives)
    others = {url for url in addresses if not url.startswith(of_archive)}
    assert others < addresses
    assert others
    assert all(url.startswith(f"{place}/") for url in others)
    fetched = gap.fetched("second-mirror", laboratory.addresses[node])
    names = {Path(path).name for path in fetched if path.endswith(".rpm")}
    for package in PACKAGES[node]:
        assert any(re.match(rf"{re.escape(package)}-\d", name) for name in names), package
    assert any(name.startswith("docker-ce-") for name in names) == (node == "gpu-2")


def test_streams_of_the_driver_are_in_the_mirror(laboratory):
    """Only NVIDIA's repository of Enterprise Linux 9 has streams. reposync must copy them."""
    listed = laboratory.host("gpu-1").check_output("dnf --quiet module list --enabled")
    assert re.search(r"^nvidia-driver\s+580-dkms\s.*\[e\]", listed, re.M)


def test_images_are_those_of_the_second_registry(laboratory, gap, node):
    address = re.escape(laboratory.addresses[node])
    requests = re.findall(rf'authorized request" .*"{address}:.*', gap.log("second-registry"))
    for image in IMAGES[node]:
        assert any(f"nvcr.io/{image}/manifests" in line for line in requests)
    assert all(f"auth.user.name={USER}" in line for line in requests)


def test_list_has_no_image_of_kubernetes_for_the_docker_host(gap):
    listed = yaml.safe_load((gap.folder / "list.yml").read_text())["images"]
    images = {node: {name for name, hosts in listed.items() if node in hosts} for node in IMAGES}
    (of_docker,) = images["gpu-2"]
    assert IMAGES["gpu-2"][0] in of_docker
    assert any(IMAGES["gpu-1"][0] in name for name in images["gpu-1"])


def test_mirror_has_the_signature_of_the_index_that_the_nodes_check(laboratory, gap):
    """reposync alone does not fetch it. In the other repositories, the packages are signed."""
    url = urlsplit(laboratory.facts["mirror"]["repositories"]["toolkit-rpm"]["url"])
    index = gap.folder / "mirror" / str(url.hostname) / url.path.strip("/") / "repodata/repomd.xml"
    assert index.with_name("repomd.xml.asc").is_file()
