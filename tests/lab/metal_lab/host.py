# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this machine allows the nodes, which share its kernel."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from metal_lab.cache import say

CAP_SYS_RESOURCE = 24  # linux/capability.h
INOTIFY_INSTANCES = 8192


@cache
def cgroup_version() -> int:
    return 2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1


@cache
def can_lower_oom_score() -> bool:
    """Return whether this machine can grant CAP_SYS_RESOURCE. Some sandboxes cannot."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapBnd:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
    return False


def raise_inotify_limit() -> None:
    """Raise this machine's limit of inotify instances if it is too low for some nodes.

    All nodes share one kernel and one user. Two laboratories use up the usual 128 instances. Then
    the device plugin fails with "too many open files". A reboot resets the limit.
    """
    limit = Path("/proc/sys/fs/inotify/max_user_instances")
    if int(limit.read_text()) < INOTIFY_INSTANCES:
        say(f"raising fs.inotify.max_user_instances to {INOTIFY_INSTANCES} until the next boot")
        limit.write_text(str(INOTIFY_INSTANCES))
