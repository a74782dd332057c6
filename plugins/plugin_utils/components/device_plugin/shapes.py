# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the planner gets from the variables and the cluster, and what it gives to the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import State

Object = Mapping[str, Any]  # of Kubernetes, or a row of a module about one


class Member(TypedDict):
    """A host of this run."""

    host: str
    node: str
    engine: str | None


class Desired(TypedDict):
    """The variables of the role device_plugin, and what the role asked the API server for."""

    state: State
    name: str
    namespace: str
    foreign: Literal["refuse", "adopt"]
    strategy: str
    runtime_class: str  # empty: none
    node_selector: Mapping[str, str]
    runtime_classes: list[Object]
    rows: Mapping[str, Object]  # of metal.gpu.gpu_capacity, by node
    members: list[Member]
    errors: list[str]  # of failed list requests


class Adopted(TypedDict):
    """The DaemonSet of another tool, and how its pods are found."""

    name: str
    namespace: str
    selectors: list[str]


class Data(TypedDict, total=False):
    """What the tasks need to know."""

    adopted: Adopted | None
    strategy: str
    runtime_class: str
    creates_runtime_class: bool
