# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts that a description can ask for. A laboratory builds no other ones."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class Part(NamedTuple):
    """Software that the laboratory builds and offers to its nodes."""

    what: str  # for people
    programs: tuple[str, ...]  # keys of programs.PROGRAMS


CONTAINERD, DOCKER, CRI_DOCKERD, CRIO = "containerd", "docker", "cri-dockerd", "cri-o"
CONTAINER_TOOLKIT, DEVICE_PLUGIN = "container-toolkit", "device-plugin"
DEBIAN_DRIVER = "debian-driver"
UPDATES = "updates"
RUN_FILES = "run-files"
REGISTRY = "registry"
MIRROR_TOOLS = "mirror-tools"
NFS_CLIENT = "nfs-client"
CONTAINERD_2_3 = "containerd-2.3"
ROOTLESS = "rootless"

PARTS = {
    CONTAINERD: Part("containerd.io, in Docker's repository", ("containerd", "runc")),
    CONTAINERD_2_3: Part(
        "containerd 2.3, as a program in the cache and in no repository", ("containerd-2.3",)
    ),
    DOCKER: Part(
        "Docker Engine with containerd.io, in Docker's repository",
        ("containerd", "runc", "docker", "docker-cli"),
    ),
    CRI_DOCKERD: Part("cri-dockerd, as a file of its release", ("cri-dockerd",)),
    CRIO: Part("CRI-O with its runtimes, in its repository", ("cri-o", "runc")),
    CONTAINER_TOOLKIT: Part(
        "NVIDIA's container toolkit, in NVIDIA's repository", ("container-toolkit",)
    ),
    DEVICE_PLUGIN: Part("NVIDIA's device plugin, as an image on each node", ("device-plugin",)),
    DEBIAN_DRIVER: Part("the NVIDIA driver of Debian 13 itself, in its archive", ()),
    RUN_FILES: Part(
        "NVIDIA's .run files of the drivers, an old one, and one for another machine; dkms in "
        "Debian's repository",
        (),
    ),
    REGISTRY: Part("a registry with the images of the pods", ("registry",)),
    MIRROR_TOOLS: Part("apt-mirror, skopeo and dnf of Debian, for this machine", ()),
    NFS_CLIENT: Part("the NFS client of Debian 12 itself, in its archive", ()),
    ROOTLESS: Part("what Docker of Debian 12 needs to run without root, in its archive", ()),
    UPDATES: Part(
        "empty packages: newer ones of NVIDIA's and Docker's, and an older container toolkit in "
        "the repositories of the driver",
        (),
    ),
}

# Every laboratory has Kubernetes, and what a node with this engine starts with.
ALWAYS = ("kubernetes",)
OF_ENGINE = {
    "containerd": CONTAINERD,
    "debian-containerd": "",  # Debian's own packages are in the node's image
    "docker": CRI_DOCKERD,
    "crio": CRIO,
}

# Where the engine of a node has the images of pods from.
LOADED = "loaded"  # the laboratory loads them into the engine
BUSYBOX = "busybox"  # that of an admin's pods is loaded, and the others come from the registry
NAMES = "names"  # Docker, which comes later, pulls them: upstream's names are the registry's
IMAGES = (LOADED, BUSYBOX, NAMES, REGISTRY)


def programs(parts: Collection[str]) -> tuple[str, ...]:
    """Return the programs to build for these parts, each once, Kubernetes first."""
    wanted = [name for part in PARTS if part in parts for name in PARTS[part].programs]
    return tuple(dict.fromkeys([*ALWAYS, *wanted]))
