# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the planner gets from the variables, and what it gives to the tasks."""

from __future__ import annotations

from typing import TypedDict

from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import (
    Circumstances,
    State,
)


class Desired(Circumstances):
    """The variables of the role preflight."""

    state: State
    kubelet: bool  # whether the node needs one
    gpu_count: object  # anything; the planner refuses what is no number


class Data(TypedDict, total=False):
    """What the tasks need to know."""

    node_name: str
