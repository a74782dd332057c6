# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the node needs. It would be in plugin_utils/components/toy."""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import Circumstances
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    NoData,
    Plan,
    PlanResult,
    Step,
)
from ansible_collections.metal.gpu.tests.unit.support.toy_component.observed import Observed

CONFIGURE = Step("configure", "Configure the toy")
STEPS = (CONFIGURE,)


def plan(node: Observed, desired: Circumstances) -> PlanResult:
    """Plan the toy."""
    plan = Plan[NoData](desired["host"], {})
    plan.step(CONFIGURE, None if node["toy"]["configured"] else "/etc/toyd.conf does not exist")
    return plan.result()
