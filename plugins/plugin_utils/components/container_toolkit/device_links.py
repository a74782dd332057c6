# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does /dev/char link to the GPUs? Without, containers of runc lose them at a daemon-reload."""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines.reload import (
    unlinked_reason,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import File, NoData, Plan, Step

FIRST = Step("link_first", "Create links in /dev/char before systemd reloads its units")
RULE = Step("rule", "Create links in /dev/char at boot")
LINK = Step("link", "Create links in /dev/char now")
REMOVE_RULE = Step("remove_rule", "Remove the rule for links in /dev/char")

STEPS = (FIRST, RULE, LINK, REMOVE_RULE)

# What the role writes. The command fails until nvidia_uvm is loaded. That happens after the driver
# is loaded, and with Debian's own driver not at boot.
RULE_FILE: File = {
    "path": own_files.CHAR_DEV_RULE,
    "block": 'ACTION=="add", DEVPATH=="/bus/pci/drivers/nvidia|/module/nvidia_uvm", '
    'RUN+="/usr/bin/nvidia-ctk system create-dev-char-symlinks --create-all"\n',
}


def plan_device_links(plan: Plan[NoData], node: Node, *, has_driver: bool) -> None:
    """Plan the links, and the rule that creates them at boot."""
    has_rule = bool(node["toolkit"]["char_dev_rules"])
    plan.step(RULE, None if has_rule else "no udev rule calls create-dev-char-symlinks")
    if has_rule:
        plan.step(LINK, unlinked_reason(node))
    elif has_driver:
        plan.step(LINK, "udev runs the rule only at the next load of the driver")


def links(node: Node) -> dict[str, str]:
    """Return the links that are missing, as nvidia-ctk creates them, with the files."""
    return {
        f"/dev/char/{file['major']}:{file['minor']}": file["path"]
        for file in node["device_files"]
        if not file["linked"]
    }


def plan_no_rule(plan: Plan[NoData], node: Node) -> None:
    """Plan the removal of the rule."""
    if RULE_FILE["path"] in node["ours"]["files"]:
        plan.step(REMOVE_RULE, "this role created the rule")
