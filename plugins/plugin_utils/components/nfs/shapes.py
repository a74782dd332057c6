# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the planner gets from the variables, and what it gives to the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import (
    Circumstances,
    State,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.role import PackageData
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import File


class Desired(Circumstances):
    """The variables of the role nfs_mounts."""

    state: State
    mounts: list[Mapping[str, object]]
    options: list[str]


class Asked(TypedDict):
    """A mount, as metal.gpu.nfs_export_info takes it."""

    server: str
    export: str
    path: str
    version: str
    read_only: bool
    squashed: bool
    port: int
    mount_port: int
    security: str
    transport: str


class Data(PackageData, total=False):
    """What the tasks need to know."""

    mounts: list[Asked]
    units: list[File]  # to write
    automounts: list[str]  # to start
    paths: list[str]  # where they mount
    stale_mounts: list[str]  # names of units to stop
    stale_automounts: list[str]
    stale_files: list[str]  # to delete
    stale_blocks: list[str]  # files with lines of the admin, to take our block from
