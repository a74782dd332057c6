# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does CRI-O run hooks of NVIDIA's from before CDI?

Such a hook gives GPUs to each container whose image has NVIDIA_VISIBLE_DEVICES, also without a
request. It is turned off in its file, so that a teardown can restore the file byte by byte. Hooks
of others are not looked at.
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import Crio
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import NoData, Plan, Step

TURN_OFF = Step("hooks", "Turn off the OCI hooks of NVIDIA")


def plan_hooks(plan: Plan[NoData], engine: Crio, *, is_permitted: bool) -> list[str]:
    """Plan to turn off the hooks that run. Return their files, or report why they stay."""
    # With false, a hook runs for no container, whatever its other conditions are.
    # Source: containers/common, pkg/hooks/1.0.0/when.go.
    active = [hook for hook in engine["hooks"] if hook["always"] is not False]
    if not active:
        return []
    if not is_permitted:
        plan.notice("OCI_HOOK_FOUND", paths=", ".join(hook["path"] for hook in active))
        return []
    for hook in active:
        if hook["error"]:
            plan.refuse("CONFIG_NOT_EDITABLE", path=hook["path"], error=hook["error"])
    paths = [hook["path"] for hook in active]
    plan.step(TURN_OFF, f"CDI takes the place of {', '.join(paths)}")
    return paths
