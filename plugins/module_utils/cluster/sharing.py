# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""How does the device plugin share the GPUs of a node, and what must the node then have?

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
    from collections.abc import Collection, Mapping

GPU = "nvidia.com/gpu"
_SHARED, _PART = ".shared", "nvidia.com/mig-"
_NONE, _SINGLE, _MIXED = "none", "single", "mixed"
MPS = "MPS"
_STRATEGIES = {"timeSlicing": "time-slicing", "mps": MPS}
# Labels of GPU feature discovery.
_STRATEGY, _MIG = "nvidia.com/gpu.sharing-strategy", "nvidia.com/mig.strategy"
_SHARING_WORDS = {"time-slicing": "time-slicing", "mps": MPS}
# The label that selects a configuration for one node.
_CONFIG_LABEL = "nvidia.com/device-plugin.config"
# How the program that reads this label chooses without it, and the configuration of that name.
_NAMED, _ONLY, _EMPTY = "named", "single", "empty"
_FALLBACK = "default"
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
    key: str = ""  # in the ConfigMap; empty: one of those that `fallbacks` choose
    fallbacks: Collection[str] = (_NAMED, _ONLY)


class Expected(NamedTuple):
    """What a node must have. None: nothing shows how many parts of GPUs there must be."""

    resources: Mapping[str, int] | None
    gpus: int
    source: str = ""  # why it is not one nvidia.com/gpu for each GPU; empty if it is
    resource: str = GPU  # what a pod asks for
    shared: bool = False  # a pod gets a share or a part of a GPU
    # Where `resources` is None: what is known all the same, and at least how many parts.
    known: Mapping[str, int] = {}
    least: int = 0
    unread: str = ""  # why nobody knows how the GPUs are shared
    mps: bool = False  # by MPS: a CUDA program of another user would disturb the others

    def as_row(self) -> dict[str, Any]:
        return {
            "resources": None if self.resources is None else dict(self.resources),
            "known": dict(self.known),
            "least": self.least,
            "gpus": self.gpus,
            "source": self.source,
            "resource": self.resource,
            "shared": self.shared,
            "mps": self.mps,
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
                ways = _setting(other, "--fallback-strategies", "FALLBACK_STRATEGIES")
                setup = Setup(mig, f"{namespace}/{maps[mount['name']]}", key)
                return setup._replace(fallbacks=tuple(ways.split(","))) if ways else setup
    return Setup(mig)


def choose_key(setup: Setup, keys: Collection[str]) -> str | None:
    """Return the key of a configuration in its ConfigMap; empty: none at all, None: unknown."""
    if setup.key:
        return setup.key if setup.key in keys else None
    for way in setup.fallbacks:
        if way == _NAMED and _FALLBACK in keys:
            return _FALLBACK
        if way == _ONLY and len(keys) == 1:
            return next(iter(keys))
        if way == _EMPTY:
            return ""
    return None


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
    gpus: int,
    sharing: Sharing,
    labels: Mapping[str, str],
    found: Mapping[str, int],
    split: int | None = None,
) -> Expected:
    """Return what a node with so many GPUs must have.

    `found` are the resources that it can allocate. They show whether GPUs are split where the
    strategy for MIG allows both. `split` is the number of GPUs in MIG mode; None: unknown.
    """
    words = []
    if sharing.replicas > 1:
        words.append(f"{sharing.replicas} replicas of each GPU by {sharing.strategy}")
    if sharing.mig != _NONE:
        words.append(f"the MIG strategy {sharing.mig}")
    source = f"{' and '.join(words)}, says {sharing.source}" if words else ""
    whole = {sharing.resource: gpus * sharing.replicas}
    if sharing.mig == _SINGLE:
        product = labels.get(f"{GPU}.product", "")
        is_split = bool(split) if split is not None else not product or "-MIG-" in product
        if not is_split:  # then this strategy is that without MIG
            source = source if sharing.replicas > 1 else ""
            return Expected(whole, gpus, source, sharing.resource, sharing.replicas > 1)
        parts = _whole(labels.get(f"{GPU}.count")) if "-MIG-" in product else 0
        resource = sharing.resource
        if parts:
            resources = {resource: parts * sharing.replicas}
            return Expected(resources, gpus, source, resource, shared=True)
        if split is None and not product:
            source += "; nothing shows whether GPUs are split"
        return Expected(None, gpus, source, _first(found) or resource, shared=True, least=gpus)
    has_parts = any(amount and _is_part(resource) for resource, amount in found.items())
    if split != 0 and (sharing.mig == _MIXED or has_parts):
        source = source or "the node has parts of GPUs (MIG)"
        if split is None:
            source += "; nothing shows how many GPUs are not split"
        rest = {} if split is None else {sharing.resource: max(0, gpus - split) * sharing.replicas}
        counted = {
            match["resource"]: _whole(value)
            * max(1, _whole(labels.get(f"{match['resource']}.replicas")))
            for label, value in labels.items()
            if (match := _COUNT.fullmatch(label))
        }
        if counted:
            resources = {**counted, **rest}
            return Expected(resources, gpus, source, _first(resources) or GPU, shared=True)
        least = gpus if split is None else split
        return Expected(None, gpus, source, _first(found) or GPU, True, rest, least)
    is_shared = sharing.replicas > 1
    # Without a GPU in MIG mode, the strategy for MIG changes nothing.
    return Expected(whole, gpus, source if is_shared else "", sharing.resource, is_shared)


def by_hand(wanted: Mapping[str, int], gpus: int) -> Expected:
    """Return what the variable gpu_expected says."""
    if dict(wanted) == {GPU: gpus}:
        return Expected(dict(wanted), gpus)
    is_shared = sum(wanted.values()) > gpus or any(
        amount and (_is_part(resource) or resource.endswith(_SHARED))
        for resource, amount in wanted.items()
    )
    return Expected(dict(wanted), gpus, "gpu_expected", _first(wanted) or GPU, is_shared)


def unread(plain: Expected, found: Mapping[str, int], why: str) -> Expected:
    """Return what a node with more than its GPUs must have, if nobody knows how they are shared."""
    source = "how they are shared could not be read"
    return plain._replace(source=source, resource=_first(found) or GPU, shared=True, unread=why)


def _first(amounts: Mapping[str, int]) -> str:
    """Return the first resource of which there is something; empty without one."""
    return next((resource for resource, amount in amounts.items() if amount > 0), "")


def _is_part(resource: str) -> bool:
    return resource.startswith(_PART)


def differs(wanted: Mapping[str, int], resource: str, capacity: int, allocatable: int) -> bool:
    """Tell whether a node has another amount of a resource than it must have.

    Whole GPUs that are not named can be there beside parts of GPUs, however many.
    """
    amount = wanted.get(resource)
    # After a resource gets another name, the kubelet keeps the old one for a while, of which
    # nothing is allocatable.
    if not amount and not allocatable:
        return False
    if amount is None and resource == GPU and any(map(_is_part, wanted)):
        return capacity != allocatable
    return (capacity, allocatable) != (amount or 0, amount or 0)


def is_met(expected: Expected, found: Mapping[str, tuple[int, int]]) -> bool:
    """Tell whether a node has what it must have, given capacity and allocatable by resource."""
    wanted = expected.known if expected.resources is None else expected.resources
    names = [*wanted, *found] if expected.resources is not None else [*wanted]
    if any(differs(wanted, name, *found.get(name, (0, 0))) for name in names):
        return False
    if expected.resources is not None:
        return True
    rest = [amounts for name, amounts in found.items() if name not in wanted and amounts[1]]
    is_whole = all(capacity == allocatable for capacity, allocatable in rest)
    return is_whole and sum(allocatable for _capacity, allocatable in rest) >= expected.least


def describe(resources: Mapping[str, int] | None, known: Mapping[str, int], least: int) -> str:
    """Return the words for what a node must have."""
    words = [f"{amount} {name}" for name, amount in (resources or known).items()]
    if resources is None:
        words.append(f"at least {least} {'parts of GPUs' if known else 'in all'}")
    return ", ".join(words) or "none"
