# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the planner gets from the variables, and what it gives to the tasks."""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import State
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.role import (
    PackageData,
    RepositoryDesired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Change


class Desired(RepositoryDesired):  # pylint: disable=duplicate-bases
    """The variables of the role crio."""

    state: State
    version: str


class Data(PackageData, total=False):
    """What the tasks need to know."""

    change: Change | None
