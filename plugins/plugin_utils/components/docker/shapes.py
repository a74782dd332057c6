# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the planner gets from the variables, and what it gives to the tasks."""

from __future__ import annotations

from typing import TypedDict

from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import (
    Circumstances,
    State,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import PackageData
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
    RepositoryVariables,
)


class Desired(Circumstances, RepositoryVariables):
    """The variables of the role docker_ce."""

    state: State
    version: str
    containerd_version: str
    replace_distribution: bool
    v1_removal_ok: bool
    users: list[str]
    cri_dockerd_url: str
    cri_dockerd_checksum: str


class ContainersRecord(TypedDict, total=False):
    """The record of containers that must run again, and the names to add by their IDs."""

    path: str
    merge: dict[str, str]


class Data(PackageData, total=False):
    """What the tasks need to know."""

    v1_containers: list[str]
    v1_volumes: list[str]
    leftover_packages: list[str]
    leftover_lists: list[str]
    record: ContainersRecord
    containers: list[str]
    daemon_reload: bool
    users: list[str]
    cri_dockerd_url: str | None
