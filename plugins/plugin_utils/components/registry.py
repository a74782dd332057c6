# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plans of all roles for one node. No function does I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from ansible_collections.metal.gpu.plugins.module_utils.read.fabric import SUBNET_MANAGER
from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import (
    plan as container_toolkit,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import (
    plan as containerd,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio import plan as crio
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import plan as docker
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    packages as driver_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import plan as driver
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import subnet_manager
from ansible_collections.metal.gpu.plugins.plugin_utils.components.kubelet import plan as kubelet
from ansible_collections.metal.gpu.plugins.plugin_utils.components.nfs import plan as nfs
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import (
    plan as platform,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries import (
    plan as registries,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import PlanResult

Planner = Callable[[Node, Mapping[str, object]], PlanResult]

# By role, in the order in which the roles run. Each takes its own `Desired`; see desired.py.
_PLANNERS = {
    "preflight": platform.plan,
    "nvidia_driver": driver.plan,
    "containerd": containerd.plan,
    "docker_ce": docker.plan,
    "crio": crio.plan,
    "registries": registries.plan,
    "nvidia_container_runtime": container_toolkit.plan,
    "kubelet_device_plugins": kubelet.plan,
    "nfs_mounts": nfs.plan,
}
PLANNERS = cast(Mapping[str, Planner], _PLANNERS)
# Roles that only nodes with this engine need.
ENGINE_OF = {"containerd": "containerd", "docker_ce": "docker", "crio": "crio"}

# What one observation must contain, so that it is enough for all plans.
PACKAGES = (
    *("python3-debian", "containerd*", "docker*", "podman-docker", "runc", "cri-dockerd"),
    "cri-o*",
    *("nvidia-*", "libnvidia-*", "linux-headers-*", "kernel-devel*", "kmod-nvidia*", "dkms"),
    # Of kernels: linux-image-generic, and the images of single kernels.
    *("linux-modules-nvidia-*", "linux-image-*", "libcuda1"),
    *("python3-dnf-plugin-versionlock", *driver_packages.COMPILERS),
    *(*driver_packages.INSTALLER_NEEDS, SUBNET_MANAGER, *subnet_manager.TOOLS),
    *nfs.PACKAGES,
)
# The repositories of this collection, those of nvidia-docker, and EPEL.
REPOSITORIES = (
    *("metal-gpu-*", "nvidia-docker", "nvidia-container-runtime", "libnvidia-container"),
    "epel*",
)
