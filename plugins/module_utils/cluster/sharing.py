# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""How does the device plugin share the GPUs of a node, and what must the node then have? No I/O.

Source: tests/recorded/device_plugin.yml, sharing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import pod_status
from ansible_collections.metal.gpu.plugins.module_utils.mappings import (
    flag,
    number,
    section,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GPU = "nvidia.com/gpu"
_SHARED = ".shared"
_NONE, _SINGLE, _MIXED = "none", "single", "mixed"
_STRATEGIES = {"timeSlicing": "time-slicing", "mps": "MPS"}
# Labels of GPU feature discovery.
_STRATEGY, _MIG = "nvidia.com/gpu.sharing-strategy", "nvidia.com/mig.strategy"
_SHARING_WORDS = {"time-slicing": "time-slicing", "mps": "MPS"}
# The label that selects a configuration for one node.
_CONFIG_LABEL = "nvidia.com/device-plugin.config"
_COUNT = re.compile(r"(?P<resource>nvidia\.com/mig-[^/]+)\.count")


class Sharing(NamedTuple):
    """How the GPUs of a node are shared."""

    replicas: int = 1  # of a GPU
    strategy: str = ""  # "time-slicing" or "MPS"; empty: none
    renamed: bool = False
    mig: str = _NONE
    source: str = ""

    @property
    def resource(self) -> str:
        return f"{GPU}{_SHARED}" if self.renamed and self.replicas > 1 else GPU


class Setup(NamedTuple):
    """Where the configuration of a device plugin is."""

    mig: str = ""  # from its arguments or its environment, which override the configuration
    name: str = ""  # namespace/name of the ConfigMap; empty: no configuration
    key: str = ""  # in the ConfigMap; empty: the only one


class Expected(NamedTuple):
    """What a node must have. None: nothing shows how many parts of GPUs there must be."""

    resources: Mapping[str, int] | None
    sharing: Sharing
    gpus: int
    source: str  # why it is not one nvidia.com/gpu for each GPU; empty if it is

    def as_row(self) -> dict[str, Any]:
        shared = self.sharing.replicas > 1 or self.sharing.mig != _NONE
        return {
            "resources": None if self.resources is None else dict(self.resources),
            "gpus": self.gpus,
            "source": self.source,
            "resource": next(iter(self.resources or ()), GPU),
            "shared": shared and bool(self.source),
        }


def of_setup(daemonset: Mapping[str, Any], labels: Mapping[str, str]) -> Setup:
    """Return where the device plugin of a DaemonSet gets its configuration from, for a node."""
    spec = section(daemonset, "spec", "template", "spec")
    if not pod_status.is_device_plugin({"spec": spec}):
        return Setup()
    name = pod_status.plugin_container({"spec": spec})
    container = next(one for one in spec["containers"] if one["name"] == name)
    mig = _setting(container, "--mig-strategy", "MIG_STRATEGY")
    path = _setting(container, "--config-file", "CONFIG_FILE")
    if not path:
        return Setup(mig)
    namespace = daemonset["metadata"]["namespace"]
    maps = {
        volume["name"]: volume["configMap"].get("name", "")
        for volume in spec.get("volumes", ())
        if "configMap" in volume
    }
    for mount in container.get("volumeMounts", ()):
        folder = mount["mountPath"].rstrip("/")
        if mount["name"] in maps and path.startswith(f"{folder}/"):
            return Setup(mig, f"{namespace}/{maps[mount['name']]}", path[len(folder) + 1 :])
    # The chart has a second program that copies one of the configurations to the path.
    for other in (*spec.get("initContainers", ()), *spec["containers"]):
        for mount in other.get("volumeMounts", ()):
            if mount["name"] in maps:
                default = _setting(other, "--default-config", "DEFAULT_CONFIG")
                key = labels.get(_CONFIG_LABEL) or default
                return Setup(mig, f"{namespace}/{maps[mount['name']]}", key)
    return Setup(mig)


def _setting(container: Mapping[str, Any], option: str, variable: str) -> str:
    """Return the value of an option of a program: an argument, else the environment."""
    words = [*container.get("command", ()), *container.get("args", ())]
    for number_, word in enumerate(words):
        if word.startswith(f"{option}="):
            return str(word[len(option) + 1 :])
        if word == option and number_ + 1 < len(words):
            return str(words[number_ + 1])
    for one in container.get("env", ()):
        if one["name"] == variable:
            return str(one.get("value") or "")
    return ""


def of_config(document: object, setup: Setup) -> Sharing:
    """Return what a configuration of the device plugin says; None stands for no configuration."""
    source = f"the configuration in the ConfigMap {setup.name}" if setup.name else ""
    mig = setup.mig or text(document, "flags", "migStrategy") or _NONE
    if setup.mig:
        source = source or "the arguments of the device plugin"
    for key, strategy in reversed(_STRATEGIES.items()):  # MPS goes before time-slicing
        shared = section(document, "sharing", key)
        resources = shared.get("resources")
        for one in resources if isinstance(resources, list) else ():
            replicas = number(one, "replicas") or 1
            if text(one, "name") in (GPU, "gpu") and replicas > 1:
                renamed = bool(flag(shared, "renameByDefault"))
                return Sharing(replicas, strategy, renamed, mig, source)
    return Sharing(mig=mig, source=source)


def of_labels(labels: Mapping[str, str]) -> Sharing | None:
    """Return what the labels of GPU feature discovery say; None without them."""
    if _STRATEGY not in labels and _MIG not in labels:
        return None
    strategy = _SHARING_WORDS.get(labels.get(_STRATEGY, ""), "")
    replicas = _whole(labels.get(f"{GPU}.replicas"))
    # The name of a shared product gets a suffix, unless the resource has one.
    renamed = "-SHARED" not in labels.get(f"{GPU}.product", "-SHARED")
    return Sharing(
        max(1, replicas) if strategy else 1,
        strategy,
        renamed and bool(strategy),
        labels.get(_MIG, _NONE),
        "the labels of GPU feature discovery",
    )


def _whole(value: str | None) -> int:
    return int(value) if value and value.isdecimal() else 0


def expect(
    gpus: int, sharing: Sharing, labels: Mapping[str, str], found: Iterable[str]
) -> Expected:
    """Return what a node with so many GPUs must have.

    `found` are the resources that it has. They show whether GPUs are split where the strategy for
    MIG allows both.
    """
    words = []
    if sharing.replicas > 1:
        words.append(f"{sharing.replicas} replicas of each GPU by {sharing.strategy}")
    if sharing.mig != _NONE:
        words.append(f"the MIG strategy {sharing.mig}")
    source = f"{' and '.join(words)}, says {sharing.source}" if words else ""
    split = {resource for resource in found if resource.startswith("nvidia.com/mig-")}
    if sharing.mig == _SINGLE:
        parts = _whole(labels.get(f"{GPU}.count"))
        if "-MIG-" in labels.get(f"{GPU}.product", "") and parts:
            return Expected({sharing.resource: parts * sharing.replicas}, sharing, gpus, source)
        return Expected(None, sharing, gpus, source)
    if sharing.mig == _MIXED or split:
        counted = {
            match["resource"]: _whole(value)
            * max(1, _whole(labels.get(f"{match['resource']}.replicas")))
            for label, value in labels.items()
            if (match := _COUNT.fullmatch(label))
        }
        mixed = sharing._replace(mig=_MIXED)
        source = source or "the node has parts of GPUs (MIG)"
        return Expected(counted or None, mixed, gpus, source)
    return Expected({sharing.resource: gpus * sharing.replicas}, sharing, gpus, source)


def by_hand(wanted: Mapping[str, int], gpus: int) -> Expected:
    """Return what the variable gpu_expected says."""
    total = sum(wanted.values())
    is_plain = dict(wanted) == {GPU: gpus}
    replicas = max(1, total // gpus) if gpus and not is_plain else 1
    parts = _MIXED if any("/mig-" in resource for resource in wanted) else _NONE
    sharing = Sharing(max(replicas, 1 if is_plain else 2), "", mig=parts)
    source = "" if is_plain else "gpu_expected"
    return Expected(dict(wanted), sharing, gpus, source)
