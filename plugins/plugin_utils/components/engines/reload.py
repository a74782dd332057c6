# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which containers lose their GPUs when systemd reloads its units?

With control groups of systemd, runc tells systemd which devices a container may use. The hook of
NVIDIA's runtime adds its devices behind runc's back, so systemd takes them away when it applies its
units again. Devices by CDI are known to runc, and links in /dev/char let systemd find the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import NoData, Plan, Step

_SYSTEMD = "systemd"
_GPU_FILE = re.compile(r"/dev/nvidia\d+")


def notice_reload(plan: Plan[NoData], node: Node, *steps: Step, permission: str = "") -> str | None:
    """Name the containers that lose their GPUs, if one of the steps reloads systemd.

    An installation of packages with units does so, too. Return why, if there are such containers.
    `permission` is the variable without which the node is refused.
    """
    reasons = [step.title for step in plan.steps if step in steps]
    users = [*dict.fromkeys(_users(node))]
    unlinked = unlinked_reason(node)
    if not (reasons and users and unlinked):
        return None
    found = {"steps": ", ".join(reasons), "containers": ", ".join(users), "evidence": unlinked}
    if permission:
        plan.refuse("RELOAD_TAKES_GPUS", **found, permission=permission)
    else:
        plan.notice("GPUS_LOST_BY_RELOAD", **found)
    return unlinked


def may_take(node: Node) -> bool:
    """Tell whether pods that run can lose their GPUs; the node's users of the driver are these."""
    engines = node["engines"]
    by_docker = _has_docker(node) and engines["docker"]["default_runtime"] == runtime.NAME
    containerd = engines["containerd"]
    ours = containerd["runtimes"].get(runtime.NAME)
    # Without CDI, a pod that names the runtime by its RuntimeClass has its GPUs by the hook, too.
    by_containerd = (
        (containerd["default_runtime"] == runtime.NAME or containerd["cdi_enabled"] is False)
        and ours is not None
        and bool(ours["systemd_cgroup"])
    )
    by_hook = by_docker or by_containerd or _is_crio_affected(node)
    return by_hook and unlinked_reason(node) is not None


def unlinked_reason(node: Node) -> str | None:
    """Return which files of GPUs /dev/char has no link to."""
    files = [file for file in node["device_files"] if _GPU_FILE.fullmatch(file["path"])]
    unlinked = [file["path"] for file in files if not file["linked"]]
    return f"/dev/char has no link to {', '.join(unlinked)}" if unlinked else None


def _users(node: Node) -> Iterator[str]:
    """Yield the containers and the pods that may have GPUs by the hook."""
    docker = node["engines"]["docker"]
    if _has_docker(node):
        running = {one["name"] for one in docker["containers"]}
        yield from (name for name in docker["made_with"].get(runtime.NAME, ()) if name in running)
        yield from (one["name"] for one in docker["containers"] if one["gpus_by_hook"])
    if may_take(node):
        for user in node["device_users"] or ():
            if user["pod"]:
                yield f"pod {user['pod']} ({user['command']})"


def _has_docker(node: Node) -> bool:
    return node["engines"]["docker"]["cgroup_driver"] == _SYSTEMD


def _is_crio_affected(node: Node) -> bool:
    """Tell whether CRI-O gives GPUs by the hook: that of NVIDIA's runtime, or one of its own."""
    engine = node["engines"]["crio"]
    has_hook = any(hook["always"] is not False for hook in engine["hooks"])
    # The kubelet has the same driver of control groups. Unset, it is systemd in CRI-O.
    is_systemd = node["cgroup"]["driver"] in (None, _SYSTEMD)
    uses_hook = engine["default_runtime"] == runtime.NAME or has_hook
    return bool(engine["running"]) and is_systemd and uses_hook
