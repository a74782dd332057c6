# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which containers lose their GPUs when systemd reloads its units?

With control groups of systemd, runc tells systemd which devices a container may use. The hook of
NVIDIA's runtime adds its devices behind runc's back, so systemd takes them away when it applies its
units again. Devices by CDI are known to runc, and links in /dev/char let systemd find the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import (
    device_links,
    runtime,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import NoData, Plan, Step

_SYSTEMD = "systemd"


def notice_reload(plan: Plan[NoData], node: Node, *steps: Step) -> None:
    """Name the containers that lose their GPUs, if one of the steps reloads systemd.

    An installation of packages with units does so, too.
    """
    reasons = [step["name"] for step in plan.steps if step["slug"] in {one.slug for one in steps}]
    users = [*dict.fromkeys(_users(node))]
    unlinked = device_links.unlinked_reason(node)
    if reasons and users and unlinked:
        plan.notice(
            "GPUS_LOST_BY_RELOAD",
            steps=", ".join(reasons),
            containers=", ".join(users),
            evidence=unlinked,
        )


def _users(node: Node) -> Iterator[str]:
    """Yield the containers and the pods that may have GPUs by the hook."""
    docker, containerd = node["engines"]["docker"], node["engines"]["containerd"]
    has_docker = docker["cgroup_driver"] == _SYSTEMD
    if has_docker:
        yield from docker["made_with"].get(runtime.NAME, ())
    by_docker = has_docker and docker["default_runtime"] == runtime.NAME
    ours = containerd["runtimes"].get(runtime.NAME)
    by_containerd = (
        containerd["default_runtime"] == runtime.NAME
        and ours is not None
        and bool(ours["systemd_cgroup"])
    )
    if by_docker or by_containerd:
        for user in node["device_users"] or ():
            if user["pod"]:
                yield f"pod {user['pod']} ({user['command']})"
