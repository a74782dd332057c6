# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""May this cluster get the device plugin from us? The API server works out what there is to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan

_PROGRAM = "k8s-device-plugin"
CLUSTER = "cluster"  # whom the refusal is about


def plan(daemonsets: Sequence[Mapping[str, Any]], wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Judge the DaemonSets of a cluster. Wishes: name and namespace of ours."""
    made = Plan(CLUSTER)
    ours = f"{wishes['namespace']}/{wishes['name']}"
    for daemonset in daemonsets:
        name = "{namespace}/{name}".format_map(daemonset["metadata"])
        if name != ours and _is_device_plugin(daemonset):
            made.refuse("DEVICE_PLUGIN_FOREIGN", found=name)
    return made.result()


def _is_device_plugin(daemonset: Mapping[str, Any]) -> bool:
    """Whether a container has NVIDIA's image, from whatever registry.

    The image has feature discovery in it, too, which is started by a command of its own.
    """
    return any(
        container["image"].partition("@")[0].rpartition("/")[2].partition(":")[0] == _PROGRAM
        and "gpu-feature-discovery" not in " ".join(container.get("command") or ())
        for container in daemonset["spec"]["template"]["spec"]["containers"]
    )
