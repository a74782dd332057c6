# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the planner gets from the variables, and what it gives to the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd.embedded import (
    Restarted,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import (
    Circumstances,
    State,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.shapes import (
    ExpectedMirrors,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.layout import Target
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Change, Edit


class Desired(Circumstances):
    """The variables of the role registries."""

    state: State
    hosts: list[Mapping[str, object]]
    restart_ok: bool
    check: bool


class Data(TypedDict, total=False):
    """What the tasks need to know. It has no secrets; the filter adds them."""

    target: Target
    asks: bool  # whether the node asks the registries first
    folders: list[str]  # to create
    created: list[str]  # folders of which the role remembers that it made them
    certificates: list[str]  # files to write
    restore: list[str]  # documents to undo
    settings: list[str]  # documents to write
    logins: list[str]  # documents with secrets to write
    replace: list[str]  # those of them in which earlier edits end; one edit, so it can be undone
    gone: list[str]  # certificates to remove
    empty: list[str]  # folders to remove if they are empty
    config: Edit | None  # of containerd itself
    validates: bool  # whether Docker can check daemon.json
    change: Change | None
    distribution: Restarted
    expected: ExpectedMirrors
