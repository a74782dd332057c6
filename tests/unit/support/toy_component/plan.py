# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the node needs. It would be in plugin_utils/components/toy."""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    NoData,
    Plan,
    PlanResult,
    Step,
)
from ansible_collections.metal.gpu.tests.unit.support.toy_component.observed import Observed
from ansible_collections.metal.gpu.tests.unit.support.toy_component.shapes import Desired

CONFIGURE = Step("configure", "Configure the toy")
DELETE = Step("delete", "Delete the configuration of the toy")
STEPS = (CONFIGURE, DELETE)


def plan(node: Observed, desired: Desired) -> PlanResult:
    """Plan the toy."""
    plan = Plan[NoData](desired["host"], {})
    is_there = node["toy"]["configured"]
    if desired["state"] == "present":
        plan.step(CONFIGURE, None if is_there else "/etc/toyd.conf does not exist")
    else:
        plan.step(DELETE, "/etc/toyd.conf exists" if is_there else None)
    return plan.result()
