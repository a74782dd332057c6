# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the planner gets from the variables, and what it gives to the tasks."""

from __future__ import annotations

from typing import Literal

from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import (
    register_runtime as containerd,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio import (
    register_runtime as crio,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import State
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import (
    register_runtime as docker,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.role import (
    PackageData,
    RepositoryDesired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Edit, File


class Desired(RepositoryDesired, runtime.Desired):  # pylint: disable=duplicate-bases
    """The variables of the role nvidia_container_runtime."""

    state: State
    version: str
    upgrade_ok: bool
    envvar: Literal["auto", "accept", "ignore"]


class Data(PackageData, containerd.Data, docker.Data, crio.Data, total=False):
    """What the tasks need to know, with what each engine adds."""

    links: dict[str, str]  # to create first, with the files
    rule: File
    cdi_drop_in: File
    change_held: bool
    purge: bool
    files: list[str]
    settings: Edit  # of the toolkit itself
