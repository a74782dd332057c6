# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role's variables ask for. It would be in plugin_utils/components/toy."""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import (
    Circumstances,
    State,
)


class Desired(Circumstances):
    """The variables of the role toy."""

    state: State
