# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the planner gets from the variables, and what it gives to the tasks."""

from __future__ import annotations

from typing import TypedDict

from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import (
    Circumstances,
    State,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Edit


class Desired(Circumstances):
    """The variables of the role kubelet_device_plugins."""

    state: State


class Replacement(TypedDict):
    """Arguments of ansible.builtin.replace."""

    path: str
    regexp: str
    replace: str


class Data(TypedDict, total=False):
    """What the tasks need to know."""

    configuration: list[Edit]
    flags: list[Replacement]
    health_url: str | None
    daemon_reload: bool
    edits: list[str]
