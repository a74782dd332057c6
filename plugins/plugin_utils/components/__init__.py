# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The list of components, in the order in which their roles run.

The tags, the stages of a run, the plans, the observation and the names in findings follow from it.
It imports no component, because each of them can import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ansible_collections.metal.gpu.plugins.plugin_utils.component import Component, Engine

COMPONENTS = (
    Component(
        *("platform", "preflight", "", "Check the nodes"),
        packages=("python3-debian", "python3-dnf-plugin-versionlock"),
        repositories=("metal-gpu-*", "epel*"),
    ),
    Component(
        *("driver", "nvidia_driver", "driver", "Driver"),
        has_own_prefix=True,
        packages=(
            *("nvidia-*", "libnvidia-*", "kmod-nvidia*", "libcuda1", "dkms"),
            # Of kernels: linux-image-generic, and the images of single kernels.
            *("linux-headers-*", "kernel-devel*", "linux-modules-nvidia-*", "linux-image-*"),
            *("gcc", "gcc-12", "libc6-dev"),
            *("nvlsm", "infiniband-diags", "pciutils"),
        ),
    ),
    Component(
        *("containerd", "containerd", "engine", "Container engine"),
        engine=Engine("containerd", "containerd"),
        packages=("containerd*", "runc"),
    ),
    Component(
        *("docker", "docker_ce", "engine", "Container engine"),
        has_own_prefix=True,
        engine=Engine("Docker", "cri-dockerd"),
        packages=("docker*", "podman-docker", "cri-dockerd"),
        repositories=("nvidia-docker",),
    ),
    Component(
        *("crio", "crio", "engine", "Container engine"),
        engine=Engine("CRI-O", "crio"),
        packages=("cri-o*",),
    ),
    Component("registries", "registries", "registries", "Registries"),
    Component(
        *("container_toolkit", "nvidia_container_runtime", "runtime", "Container runtime"),
        has_own_prefix=True,
        repositories=("nvidia-container-runtime", "libnvidia-container"),
    ),
    Component(
        *("kubelet", "kubelet_device_plugins", "kubelet", "Kubelet"),
        has_own_prefix=True,
    ),
    Component(
        *("nfs", "nfs_mounts", "nfs", "NFS mounts"),
        is_for_site=False,  # its nodes are Docker hosts
        packages=("nfs-common", "nfs-utils"),
    ),
    Component(
        *("device_plugin", "device_plugin", "device_plugin", "Device plugin"), where="cluster"
    ),
)
ENGINES = {one.name: one.engine for one in COMPONENTS if one.engine}

_Plan = TypeVar("_Plan")


def by_name(plans: Mapping[str, _Plan]) -> dict[str, _Plan]:
    """Return the plans of roles by the names of their components."""
    names = {one.role: one.name for one in COMPONENTS}
    return {names.get(role, role): plan for role, plan in plans.items()}
