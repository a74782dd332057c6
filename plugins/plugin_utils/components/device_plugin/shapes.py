# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the planner gets from the variables and the cluster, and what it gives to the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import State

Object = Mapping[str, Any]  # of Kubernetes
Values = Mapping[str, object]


class Desired(TypedDict):
    """The variables of the role device_plugin."""

    state: State
    foreign: Literal["refuse", "adopt"]
    adopt: str  # namespace/name of the DaemonSet to adopt
    image: str
    version: str
    image_pull_secrets: list[str]
    device_list_strategy: str
    args: list[str]
    config: Values  # empty: no configuration file
    env: Values
    affinity: Values
    namespace: str
    name: str
    runtime_class: str  # empty: none
    node_selector: Mapping[str, str]
    tolerations: list[Values]
    priority_class: str
    resources: Values
    guard: Literal["auto", "enforce", "warn", "none"]
    guard_exempt_namespaces: list[str]
    guard_resources: list[str]  # their prefixes


class Member(TypedDict):
    """A host of the play."""

    host: str
    node: str  # its name in the cluster
    engine: str | None
    versions: Mapping[str, str | None]  # of its engine, and of cri-dockerd
    cdi: bool | None  # whether the engine uses CDI; None: unknown, or about to change
    default: str | None  # its default runtime, likewise
    gives_gpus_by_default: bool  # the default runtime of its engine is nvidia


class Row(TypedDict):
    """A node of the cluster, from metal.gpu.gpu_capacity."""

    state: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


class Observed(TypedDict):
    """What there is in the cluster."""

    daemonsets: list[Object]
    runtime_classes: list[Object]
    priority_classes: list[Object]
    rows: Mapping[str, Row]  # of the nodes
    members: list[Member]
    errors: list[str]  # of failed list requests
    # Of admission, by kind; None if the cluster does not have the kind.
    policies: Mapping[str, list[Object] | None] | None
    policy_errors: list[str]  # of failed list requests
    cluster_policies: list[Object]  # of a GPU Operator
    config_maps: list[Object]  # that of this role, if the variable has no configuration


class Manifest(TypedDict, total=False):
    """An object of Kubernetes, or a patch."""

    apiVersion: str
    kind: str
    metadata: Values
    handler: str  # of a RuntimeClass
    data: Values  # of a ConfigMap
    spec: Values
    value: int  # of a PriorityClass, as the next two
    preemptionPolicy: str
    description: str


class Used(TypedDict):
    """The DaemonSet that must run, and how queries select its pods."""

    name: str
    namespace: str
    selectors: list[str]


class Data(TypedDict):
    """What the tasks need to know."""

    used: Used
    is_adopted: bool  # `used` is not of this role
    staying: Mapping[str, str]  # with `absent`: the plugin that a node keeps, by node
    marks: list[str]  # how queries select the objects of this role
    manifests: list[Manifest]
    former: list[Manifest]  # the ConfigMap of a configuration that left the variable
    removed: list[Manifest]  # policies of this role that go; with `absent`, all of them
