# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does this node need so that its engine can give GPUs to containers?

Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.version import release, upstream_version
from ansible_collections.metal.gpu.plugins.plugin_utils import containerd_keys, engines, systems
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_containerd import (
    RESTART,
    RESTART_REASON,
    refuse_config,
    unread_reason,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_packages import (
    REPAIR,
    arguments,
    hold_arguments,
    hold_gap,
    installed,
    packages_gap,
    plan_no_repository,
    plan_repair,
    plan_repository,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_preflight import refuse_platform
from ansible_collections.metal.gpu.plugins.plugin_utils.repositories import Repository

PYTHON_DEBIAN = "Install python3-debian for the container toolkit's repository"
REPOSITORY = "Add the container toolkit's repository"
INSTALL = "Install the container toolkit"
HOLD = "Hold the container toolkit"
RULE = "Link the character devices of the GPUs"
LINK = "Link the devices that are there already"
REGISTER = "Register the NVIDIA runtime"
CDI = "Write the CDI specification"

UNREGISTER = "Take the NVIDIA runtime out of containerd"
REMOVE_RULE = "Stop linking the character devices of the GPUs"
REMOVE = "Remove the container toolkit"
REMOVE_REPOSITORY = "Remove the container toolkit's repository"

STEPS = (
    *(REPAIR, PYTHON_DEBIAN, REPOSITORY, INSTALL, HOLD, RULE, LINK, REGISTER, RESTART, CDI),
    *(UNREGISTER, REMOVE_RULE, REMOVE, REMOVE_REPOSITORY),
)

_GPU_FILE = re.compile(r"/dev/nvidia\d+")

# What the role writes.
RULE_FILE = {
    "path": "/etc/udev/rules.d/71-metal-gpu-char-dev.rules",
    "block": 'ACTION=="add", DEVPATH=="/bus/pci/drivers/nvidia", '
    'RUN+="/usr/bin/nvidia-ctk system create-dev-char-symlinks --create-all"\n',
}

REPOSITORY_NAME = "metal-gpu-container-toolkit"
PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)


def plan(node: Mapping[str, Any], wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Plan the container runtime.

    Wishes: host, state, engine, version, default (whether it becomes the default runtime), cdi,
    and of the repository url, suite, key and fingerprint.
    """
    made = Plan(wishes["host"])
    made.data["rule"] = RULE_FILE
    refuse_platform(made, node)
    engines.refuse(made, node, engines.CONTAINERD)
    refuse_config(made, node)
    if made.refusals:
        return made.result()
    if wishes["state"] == "absent":
        _plan_absent(made, node)
    else:
        _plan_toolkit(made, node, wishes)
        _plan_registration(made, node, wishes)
        if wishes["cdi"]:
            made.step(CDI, _cdi_gap(node))
    plan_repair(made, node, PYTHON_DEBIAN, INSTALL, HOLD, REMOVE)
    return made.result()


def _plan_toolkit(made: Plan, node: Mapping[str, Any], wishes: Mapping[str, Any]) -> None:
    wanted = dict.fromkeys(PACKAGES, f"{wishes['version']}-1")
    found = node["toolkit"]["version"]
    if found is not None and release(upstream_version(found)) > release(wishes["version"]):
        made.notice("TOOLKIT_KEPT", found=found, expected=wishes["version"])
    else:
        missing = packages_gap(node, wanted)
        if missing:
            upstream = systems.known(node).toolkit
            source = Repository.wished(REPOSITORY_NAME, wishes, upstream)
            plan_repository(made, node, source, prepare=PYTHON_DEBIAN, add=REPOSITORY)
        made.data["packages"] = arguments(node, wanted)
        made.step(INSTALL, missing)
        made.data["hold"] = hold_arguments(node, wanted)
        made.step(HOLD, hold_gap(node, PACKAGES))
    if not node["toolkit"]["char_dev_rules"]:
        made.step(RULE, "no udev rule calls create-dev-char-symlinks")
        made.step(LINK, "the rule is heeded when the driver is loaded the next time")
    else:
        made.step(LINK, _unlinked_gap(node))


def _unlinked_gap(node: Mapping[str, Any]) -> str | None:
    files = [file for file in node["device_files"] if _GPU_FILE.fullmatch(file["path"])]
    unlinked = [file["path"] for file in files if not file["linked"]]
    return f"/dev/char has no link to {', '.join(unlinked)}" if unlinked else None


def _plan_registration(made: Plan, node: Mapping[str, Any], wishes: Mapping[str, Any]) -> None:
    engine = node["engines"]["containerd"]
    if not engine["installed"]:
        # The containerd role comes before this one; what it installs is not there to be read yet.
        made.data["config"] = None
        made.step(REGISTER, "there is no containerd yet")
        made.step(RESTART, RESTART_REASON)
        return
    if wishes["cdi"] and not containerd_keys.reads_cdi(engine["version"]):
        made.refuse("CDI_UNSUPPORTED", found=engine["version"], expected=containerd_keys.CDI_SINCE)
    made.data["config"] = containerd_keys.edit(engine, default=wishes["default"], cdi=wishes["cdi"])
    gap = _registration_gap(engine, wishes)
    made.step(REGISTER, gap)
    made.step(RESTART, RESTART_REASON if gap else unread_reason(engine))


def _registration_gap(engine: Mapping[str, Any], wishes: Mapping[str, Any]) -> str | None:
    found = engine["runtimes"].get(containerd_keys.RUNTIME)
    if found is None:
        return "containerd has no runtime nvidia"
    reasons = []
    if found["binary"] != containerd_keys.RUNTIME_BINARY:
        reasons.append(f"its runtime nvidia runs {found['binary'] or 'runc'}")
    runc = engine["runtimes"].get("runc") or {}
    if found["systemd_cgroup"] != bool(runc.get("systemd_cgroup")):
        reasons.append("its runtimes runc and nvidia differ in SystemdCgroup")
    if wishes["default"] and engine["default_runtime"] != containerd_keys.RUNTIME:
        reasons.append(f"its default runtime is {engine['default_runtime']}")
    if wishes["cdi"] and not engine["cdi_enabled"]:
        reasons.append("CDI is off")
    return ", ".join(reasons) or None


def _cdi_gap(node: Mapping[str, Any]) -> str | None:
    """Return why the CDI specification has to be written again."""
    known = node["cdi"]["devices"]
    if "nvidia.com/gpu=all" not in known:
        return "there is none"
    # Devices are named by index, by UUID, or both, as the toolkit is configured.
    missing = [
        gpu["uuid"]
        for gpu in node["nvml"]["devices"]
        if not {f"nvidia.com/gpu={gpu['index']}", f"nvidia.com/gpu={gpu['uuid']}"} & set(known)
    ]
    return f"it lacks {', '.join(missing)}" if missing else None


def _plan_absent(made: Plan, node: Mapping[str, Any]) -> None:
    engine = node["engines"]["containerd"]
    if engine["installed"]:
        made.data["config"] = containerd_keys.edit(engine, default=False, cdi=False)
    packages = installed(node, PACKAGES)
    made.data["packages"] = packages
    if containerd_keys.RUNTIME in engine["runtimes"]:
        made.step(UNREGISTER, "containerd has a runtime nvidia")
        made.step(RESTART, RESTART_REASON)
    else:
        made.step(RESTART, unread_reason(engine))
    if node["toolkit"]["char_dev_rules"]:
        made.step(REMOVE_RULE, "a udev rule links them")
    made.step(REMOVE, f"{', '.join(packages)} installed" if packages else None)
    plan_no_repository(made, node, REPOSITORY_NAME, remove=REMOVE_REPOSITORY)
