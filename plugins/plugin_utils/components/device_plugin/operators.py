# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where does the GPU Operator run, and does it install a driver or a toolkit on nodes?

Its DaemonSets are known by their owner: its ClusterPolicy, an object of the whole cluster. Those
that install something are known by NVIDIA's images, from any registry: their names and labels
change between versions. Anyone who may create a DaemonSet chooses its image, so an image exempts
nothing from the guard.
Source: tests/recorded/distributions.yml.
"""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.metal.gpu.plugins.module_utils.cluster.rivals import operator_owners
from ansible_collections.metal.gpu.plugins.module_utils.cluster.scheduling import missing_labels
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section, text
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.shapes import (
    Object,
    Observed,
)

# What an image installs, by the end of its name, and the value that turns it off.
IMAGES = {"/container-toolkit": "toolkit.enabled", "nvidia/driver": "driver.enabled"}


def namespaces(observed: Observed) -> set[str]:
    """Return the namespaces in which the Operator runs pods, which see GPUs without a request.

    An owner is a free text of whoever creates the DaemonSet. So it has to exist, and its status
    names the namespace of the Operator.
    """
    homes = {
        policy["metadata"]["uid"]: text(policy, "status", "namespace")
        for policy in observed["cluster_policies"]
    }
    return {
        namespace
        for daemonset in observed["daemonsets"]
        for namespace in [daemonset["metadata"]["namespace"]]
        for uid in operator_owners(daemonset)
        if uid in homes and homes[uid] in (None, namespace)
    }


def installers(observed: Observed) -> Iterator[tuple[Object, str, list[str]]]:
    """Yield each DaemonSet that installs something, the value for it, and the hosts it selects."""
    for daemonset in observed["daemonsets"]:
        spec = section(daemonset, "spec", "template", "spec")
        values = {value for image in _images(spec) if (value := _value(image))}
        hosts = [
            member["host"]
            for member in observed["members"]
            if (row := observed["rows"].get(member["node"])) is not None
            and not missing_labels(row["labels"], spec)
        ]
        if hosts:
            for value in sorted(values):
                yield daemonset, value, hosts


def _images(spec: Object) -> Iterator[str]:
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        yield str(container.get("image", ""))


def _value(image: str) -> str | None:
    path, _slash, name = image.partition("@")[0].rpartition("/")
    bare = f"{path}/{name.partition(':')[0]}"
    return next((value for end, value in IMAGES.items() if bare.endswith(end)), None)
