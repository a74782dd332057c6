# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find out whether a node's GPUs are handed out by more than one.

Two device plugins register the same resource one after the other: the kubelet listens to the last
one, and no longer to the first. A driver for dynamic resource allocation hands out GPUs that the
device plugin hands out, too, so two pods get the same GPU.

A device plugin is known by what it mounts and runs, and not by a name alone: AMD's image has the
name of NVIDIA's, and HAMi runs NVIDIA's program in an image of its own. Those that register other
resources are no rivals: tests/recorded/device_plugins.yml.

Source: kubernetes v1.37.1, pkg/kubelet/cm/devicemanager/manager.go;
https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu (its chart refuses gpus beside the plugin
unless it is told otherwise)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    gpu_claims,
    pod_status,
    scheduling,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import Cause
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import NodeStatus

# Images of NVIDIA, and of Google in 2018, which Kubespray can deploy.
_IMAGES = ("k8s-device-plugin", "nvidia-gpu-device-plugin")
# What a container runs that registers nvidia.com/gpu, also in an image of another name.
_PROGRAM = re.compile(r"(?:^|[/\s])nvidia-(?:gpu-)?device-plugin(?:\s|$)")
# AMD's. Its plugin finds GPUs in /sys, where NVIDIA's asks the driver.
_AMD, _AMD_FOLDER = "rocm", "/sys"


def is_rival(daemonset: Mapping[str, Any]) -> bool:
    """Tell whether the pods of a DaemonSet hand out GPUs."""
    template = section(daemonset, "spec", "template")
    return is_nvidia_plugin(template) or gpu_claims.is_dra_driver(template)


def has_pods(daemonset: Mapping[str, Any]) -> bool:
    """Tell whether a DaemonSet has pods: one that runs nowhere takes no GPU from anybody."""
    return section(daemonset, "status").get("currentNumberScheduled") != 0


def is_nvidia_plugin(template: Mapping[str, Any]) -> bool:
    """Tell whether the pods of a DaemonSet can register devices, and register nvidia.com/gpu.

    NVIDIA's image also contains feature discovery, the MPS control daemon and the configuration
    manager. The chart runs these in other DaemonSets: k8s-device-plugin v0.20.0,
    deployments/helm/nvidia-device-plugin/templates.
    """
    containers = section(template, "spec")["containers"]
    return pod_status.is_device_plugin(template) and (
        any(map(_runs_program, containers))
        or (any(map(_has_image, containers)) and not is_of_amd(template))
    )


def _runs_program(container: Mapping[str, Any]) -> bool:
    words = (*container.get("command", ()), *container.get("args", ()))
    return any(map(_PROGRAM.search, words))


def _has_image(container: Mapping[str, Any]) -> bool:
    return _path(container).rpartition("/")[2].partition(":")[0] in _IMAGES


def _path(container: Mapping[str, Any]) -> str:
    """Return the image of a container, without its digest."""
    return str(container.get("image")).partition("@")[0]


def is_of_amd(template: Mapping[str, Any]) -> bool:
    """Tell whether a device plugin with the name of NVIDIA's image is AMD's, also from a mirror."""
    spec = section(template, "spec")
    named = [_path(one) for one in spec["containers"] if _has_image(one)]
    if any(_AMD in image.split("/") for image in named):
        return True
    folders = [section(volume, "hostPath").get("path") for volume in spec.get("volumes", ())]
    return bool(named) and _AMD_FOLDER in folders and "nvidia" not in str(spec).casefold()


def operator_owners(daemonset: Mapping[str, Any]) -> list[str]:
    """Return the uid of the ClusterPolicy that controls a DaemonSet, as the DaemonSet says."""
    return [
        str(owner.get("uid"))
        for owner in section(daemonset, "metadata").get("ownerReferences") or ()
        if owner.get("controller")
        and owner.get("kind") == "ClusterPolicy"
        and str(owner.get("apiVersion")).startswith("nvidia.com/")
    ]


def find(name: str, node: NodeStatus, daemonsets: Iterable[Mapping[str, Any]]) -> Cause | None:
    """Return that more than one of these DaemonSets hands out the GPUs of a node."""
    here = [
        one
        for one in daemonsets
        if has_pods(one) and _runs_on(name, node, section(one, "spec", "template"))
    ]
    plugins = [one for one in here if is_nvidia_plugin(section(one, "spec", "template"))]
    drivers = [one for one in here if gpu_claims.is_dra_driver(section(one, "spec", "template"))]
    if len(plugins) > 1:
        return Cause("DEVICE_PLUGIN_TWICE", {"found": " and as ".join(map(_name, plugins))})
    if plugins and drivers and node.capacity:
        evidence = {"plugin": _name(plugins[0]), "driver": _name(drivers[0])}
        return Cause("DRA_DRIVER_BESIDE", evidence)
    return None


def _runs_on(name: str, node: NodeStatus, template: Mapping[str, Any]) -> bool:
    spec = section(template, "spec")
    return not (
        scheduling.missing_labels(node.labels, spec)
        or scheduling.unmet_affinity(name, node.labels, spec)
        or scheduling.untolerated(node.taints, scheduling.daemon_tolerations(spec))
    )


def _name(daemonset: Mapping[str, Any]) -> str:
    return "{namespace}/{name}".format_map(daemonset["metadata"])
