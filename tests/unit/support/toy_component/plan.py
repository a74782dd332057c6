# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the node needs. It would be in plugin_utils/components/toy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan, Step
from ansible_collections.metal.gpu.tests.unit.support.toy_component.observed import Observed

CONFIGURE = Step("configure", "Configure the toy")
STEPS = (CONFIGURE,)


def plan(node: Observed, desired: Mapping[str, Any]) -> dict[str, Any]:
    """Plan the toy. Desired: host."""
    plan = Plan(desired["host"])
    plan.step(CONFIGURE, None if node["toy"]["configured"] else "/etc/toyd.conf does not exist")
    return plan.result()
