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
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Change, Edit, File


class Desired(Circumstances, RepositoryVariables):
    """The variables of the role nvidia_container_runtime."""

    state: State
    version: str
    default: bool | None  # None: as the engine needs it
    restart_ok: bool
    cdi: bool


class Expected(TypedDict):
    """What Docker must report after the change."""

    default_runtime: str | None
    runtimes: list[str]


class Data(PackageData, total=False):
    """What the tasks need to know."""

    rule: File
    cdi_drop_in: File
    change_held: bool
    created_config: str | None
    config: Edit | None  # None: the engine is not installed yet
    change: Change | None
    has_changed: bool
    validates: bool
    expected: Expected
    containerd_edits: list[str]
    docker_edits: list[str]
    way_back: Edit
    purge: bool
    files: list[str]
