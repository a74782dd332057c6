# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from metal_lab import parts, programs
from metal_lab.description import DEFAULT, DEFAULT_INVENTORY, MACHINES, machine, read

GOOD = "nodes:\n  - {name: gpu-1, os: debian12, machine: p100x4}\n"
KERNEL = "6.1.0-51-amd64"
WITH_KERNEL = GOOD[:-2] + f", kernel: {KERNEL}}}"


@pytest.fixture
def described(tmp_path):
    """Return a function that reads a text as the description lab.yml."""

    def describe(text):
        path = tmp_path / "lab.yml"
        path.write_text(text)
        return read(path)

    return describe


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "is not a description", id="empty"),
        pytest.param("nodes: [", "is not a description", id="not-yaml"),
        pytest.param(GOOD + GOOD[7:], "two nodes have the same name: gpu-1, gpu-1", id="twice"),
        pytest.param(GOOD.replace("debian12", "plan9"), "os 'plan9' is not one of", id="os"),
        pytest.param(GOOD.replace("p100x4", "p100x5"), "machine 'p100x5' is not", id="machine"),
        pytest.param(GOOD[:-2] + ", engine: podman}", "engine 'podman' is not", id="engine"),
        pytest.param(GOOD[:-2] + ", images: none}", "images 'none' is not one of", id="images"),
        *(
            pytest.param(GOOD.replace("gpu-1", name), "`lab fault` has another use", id=name)
            for name in ("mirror", "registry")
        ),
        pytest.param(
            GOOD.replace("debian12", "rocky9")[:-2] + ", engine: docker}",
            "gpu-1: a node with rocky9 has the engine containerd",
            id="engine-of-rocky",
        ),
        pytest.param(
            GOOD[:-2] + ", engine: crio}",
            "gpu-1: a node with CRI-O has the os debian13",
            id="crun of Debian 12 is too old for CRI-O",
        ),
        pytest.param(GOOD.replace("os:", "system:"), "is not a description", id="unknown-key"),
        pytest.param("node: []\n" + GOOD, "is not a description", id="unknown-key-of-all"),
        pytest.param("parts: [tetris]\n" + GOOD, "part 'tetris' is not one of", id="part"),
        pytest.param("drivers: [580.178]\n" + GOOD, "a driver's version is a text", id="driver"),
        pytest.param("inventory: none.j2\n" + GOOD, "no file .*none.j2", id="template"),
        pytest.param(GOOD[:-2] + ", scenes: [war]}", "scene 'war' is not one of none", id="scene"),
        pytest.param(WITH_KERNEL, f"kernel '{KERNEL}' is not one of none", id="kernel"),
        pytest.param(
            f"kernels: {{{KERNEL}: true}}\n" + WITH_KERNEL.replace("debian12", "debian13"),
            "only nodes with debian12 have a kernel",
            id="kernel-of-debian13",
        ),
    ],
)
def test_read_names_the_file_and_the_reason(tmp_path, described, text, message):
    with pytest.raises(SystemExit, match=message) as caught:
        described(text)
    assert str(tmp_path / "lab.yml") in str(caught.value)


def test_node_has_defaults(described):
    (node,) = described(GOOD[:-2] + ", vars: {some: thing}}").nodes
    assert (node.engine, node.scenes, node.faults) == ("containerd", (), ())
    assert node.images == "registry"
    assert node.vars == {"some": "thing"}


def test_paths_are_relative_to_the_file(tmp_path, described):
    (tmp_path / "hosts.j2").touch()
    (tmp_path / "scenes").mkdir()
    (tmp_path / "scenes" / "war.sh").touch()
    keys = "inventory: hosts.j2\nscenes: scenes\n"
    description = described(keys + GOOD[:-2] + ", scenes: [war]}")
    assert description.inventory == tmp_path / "hosts.j2"
    assert description.scenes == tmp_path / "scenes"
    assert description.nodes[0].scenes == ("war",)
    assert described(GOOD).inventory == DEFAULT_INVENTORY


@pytest.mark.parametrize(
    ("engine", "keys", "expected"),
    [
        pytest.param(
            "containerd, images: loaded", "", ["kubernetes", "containerd", "runc"], id="containerd"
        ),
        pytest.param("docker, images: loaded", "", ["kubernetes", "cri-dockerd"], id="docker"),
        pytest.param("crio, images: loaded", "", ["kubernetes", "cri-o", "runc"], id="crio"),
        pytest.param("debian-containerd", "", ["kubernetes", "registry"], id="registry"),
        pytest.param(
            "debian-containerd, images: busybox", "", ["kubernetes", "registry"], id="busybox"
        ),
        pytest.param(
            "docker, images: loaded",
            "parts: [docker]\n",
            ["kubernetes", "containerd", "runc", "docker", "docker-cli", "cri-dockerd"],
            id="docker-of-docker",
        ),
        pytest.param(
            "containerd, images: loaded",
            "parts: [device-plugin, debian-driver, container-toolkit]\n",
            ["kubernetes", "containerd", "runc", "container-toolkit", "device-plugin"],
            id="gpus",
        ),
    ],
)
def test_only_needed_programs_are_built(described, engine, keys, expected):
    on_13 = GOOD.replace("debian12", "debian13")
    description = described(keys + on_13[:-2] + f", engine: {engine}}}")
    assert list(parts.programs(description.parts)) == expected


def test_every_program_belongs_to_a_part():
    assert {*parts.programs(parts.PARTS)} == {*programs.PROGRAMS}


def test_same_description_has_the_same_text(described):
    """A laboratory runs as described if this text is the same, in another process, too."""
    one, other = ("parts: [docker, containerd]\n", "parts: [containerd, docker]\n")
    assert repr(described(one + GOOD)) == repr(described(other + GOOD))


def test_systems_by_package_manager(described):
    description = described(GOOD + GOOD[7:].replace("gpu-1", "gpu-2").replace("debian12", "rocky9"))
    assert (description.suites, description.redhat) == (("bookworm",), ("rocky9",))


def test_default_can_be_read():
    assert read(DEFAULT).suites == ("bookworm", "trixie")


def test_every_machine_can_be_used(described):
    names = [file.stem for file in MACHINES.glob("*.yml")]
    assert {"p100x4", "a100x8", "h100x8", "t4x1", "mixed"} <= set(names)
    for name in names:
        (node,) = described(GOOD.replace("p100x4", name)).nodes
        assert machine(node)
