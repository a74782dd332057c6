# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes whose vendors are out of reach. lose_the_internet.yml has followed docs/air-gap.md."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from air_gap import MIRROR_PORT, USER, AirGap

OPERATIONS_ALLOWED = 1
PLUGIN = "nvcr.io/nvidia/k8s-device-plugin"
NODES = {"gpu-1", "gpu-2", "gpu-3", "gpu-4"}
ENGINES = {"gpu-2": "containerd.io_", "gpu-3": "cri-o_"}
WITH_RUN_FILE = "gpu-4"
RUN_FILE = "NVIDIA-Linux-x86_64-580.178.04.run"


@pytest.fixture(scope="module")
def gap(laboratory: Any) -> AirGap:
    return AirGap(laboratory.name)


def test_second_run_changes_nothing_and_every_gpu_is_proven(laboratory, gap):
    option, inventory = gap.inventories
    run = laboratory.playbook("metal.gpu.site", option, "-vvv", inventory=inventory)
    for node, count in laboratory.unchanged_within(run, OPERATIONS_ALLOWED).items():
        gpus = laboratory.gpu_count[node]
        assert re.search(rf"{node} .*?(\s+{gpus}){{5}}\s+{gpus}/{gpus}\s+ok\b", run.output)
        print(f"\n{node}: {count} remote operations, {OPERATIONS_ALLOWED} allowed", end=" ")


def test_check_announced_what_converge_did(check_and_converge):
    check, converge = check_and_converge
    assert check.announced
    # The settings of an engine that is not installed are observed once it is.
    later = {("gpu-2", "Tell containerd where the settings of registries are")}
    assert converge.announced == check.announced | later
    assert check.announced <= converge.ran


def test_packages_are_those_of_the_mirror(laboratory, gap, node):
    """Each node asks the archive of Debian and the mirror, and nobody else."""
    host = laboratory.host(node)
    text = host.check_output("cat /etc/apt/sources.list.d/*")
    archive = laboratory.facts["mirror"]["repositories"]["debian"]["url"]
    addresses = {url.rstrip("/") for url in re.findall(r"https?://[^\s]+", text)}
    assert archive in addresses
    place = f"{gap.mirror}/{gap.state.gateway}"
    others = addresses - {archive}
    assert others
    assert all(url.startswith(f"{place}/") for url in others)
    fetched = gap.fetched("second-mirror", laboratory.addresses[node])
    names = " ".join(path.rpartition("/")[2] for path in fetched)
    assert "nvidia-container-toolkit_" in names
    assert ("libcuda1_" in names) == (node != WITH_RUN_FILE)
    assert (RUN_FILE in names) == (node == WITH_RUN_FILE)
    engines = {engine for engine in ENGINES.values() if f" {engine}" in f" {names}"}
    assert engines == {ENGINES[node]} if node in ENGINES else engines == set()


def test_images_are_those_of_the_second_registry(laboratory, gap, node):
    (plugin,) = {
        container["image"]
        for row in laboratory.objects("daemonsets", "--all-namespaces")["items"]
        for container in row["spec"]["template"]["spec"]["containers"]
    }
    assert plugin.startswith(f"{gap.registry}/{PLUGIN}:")
    address = re.escape(laboratory.addresses[node])
    requests = re.findall(rf'authorized request" .*"{address}:.*', gap.log("second-registry"))
    assert any("k8s-device-plugin/manifests" in line for line in requests)
    assert any("cuda-sample/manifests" in line for line in requests)
    assert all(f"auth.user.name={USER}" in line for line in requests)


def test_variables_are_the_only_ones_that_name_the_mirror(gap):
    """The admin's own inventory has the addresses of the internet, and stays as it is."""
    assert str(MIRROR_PORT) not in gap.state.inventory.read_text()
    variables = yaml.safe_load((gap.folder / "variables.yml").read_text())["all"]["hosts"]
    assert {*variables} == NODES
    for found in variables.values():
        assert found["device_plugin_image"] == f"{gap.registry}/{PLUGIN}"


def test_mirror_of_the_toolkit_has_the_only_signature_that_nvidia_publishes(laboratory, gap):
    """apt-mirror does not fetch InRelease of a repository without suites."""
    url = urlsplit(laboratory.facts["mirror"]["repositories"]["toolkit"]["url"])
    folder = gap.folder / "mirror" / str(url.hostname) / url.path.strip("/")
    names = {path.name for path in folder.iterdir() if path.suffix != ".deb"}
    assert names == {"InRelease", "Packages", "Packages.xz"}
