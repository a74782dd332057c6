# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the planner gets from the variables, and what it gives to the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import State
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.role import (
    PackageData,
    RepositoryDesired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Edit, File


class Expected(TypedDict):
    """What Docker must report after a change of its options."""

    default_runtime: str
    runtimes: list[str]


class ExpectedMirrors(Expected):
    """Likewise, with mirrors of docker.io."""

    mirrors: list[str]


class Desired(RepositoryDesired):  # pylint: disable=duplicate-bases
    """The variables of the role docker_ce."""

    state: State
    version: str
    containerd_version: str
    replace_distribution: bool
    v1_removal_ok: bool
    packages: list[str]
    daemon_options: Mapping[str, object]
    proxy: Mapping[str, object]
    restart_ok: bool
    users: list[str]
    cri_dockerd_url: str
    cri_dockerd_checksum: str


class Data(PackageData, total=False):
    """What the tasks need to know."""

    change_held: bool
    v1_containers: list[str]
    v1_volumes: list[str]
    leftover_packages: list[str]
    leftover_lists: list[str]
    record: Edit  # of the containers that must run again
    containers: list[str]
    daemon_reload: bool
    options: Edit  # of daemon.json
    options_first: bool  # before Docker is installed, which then starts with them
    options_program: str | None  # checks them; None: nothing can
    options_unread: bool  # an interrupted run has written others, which Docker has not read
    option_edits: list[str]
    expected: Expected
    proxy: File  # the drop-in
    proxy_values: File
    proxy_files: list[str]  # those of the two that exist
    proxy_reload: bool  # whether systemd does not know the drop-in, or that it is gone
    proxy_with_options: bool  # the restart for the options is also that for the proxy
    users: list[str]
    cri_dockerd_url: str | None
