# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does this host mount the NFS exports that containers use?

Each mount is a pair of units of its own. Nothing of the admin is edited: a path that somebody else
mounts is refused.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.nfs import ROLE, Mounted
from ansible_collections.metal.gpu.plugins.module_utils.readable import some
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines.reload import (
    notice_reload,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.nfs import units
from ansible_collections.metal.gpu.plugins.plugin_utils.components.nfs.shapes import Data, Desired
from ansible_collections.metal.gpu.plugins.plugin_utils.components.nfs.units import Mount
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    refuse_platform,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import refuse_dependants
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.role import REPAIR, RolePackages
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import is_redhat
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan, PlanResult, Step

# All systems have it in their own archive.
OURS = RolePackages(ROLE, "metal-gpu-nfs-mounts", "the NFS client", "no source", "the NFS client")
PACKAGES = ("nfs-common", "nfs-utils")
_SYSTEMD = "systemd-"  # the source of its automounts, with its process
UNMOUNT = Step("unmount", "Unmount the NFS mounts that are not wanted")
STOP = Step("stop", "Stop the NFS automounts that are not wanted")
DELETE = Step("delete", "Delete the units of NFS mounts that are not wanted")
WRITE = Step("write", "Write the units of the NFS mounts")
START = Step("start", "Start the NFS automounts")

STEPS = (REPAIR, OURS.install, UNMOUNT, STOP, DELETE, WRITE, START, OURS.remove, OURS.forget)


def plan(node: Node, desired: Desired) -> PlanResult:
    """Plan the mounts."""
    plan = Plan[Data](desired["host"], {})
    wanted: list[Mount] = []
    if desired["state"] == "present":
        wanted, wrong = units.parse(desired["mounts"], desired["options"])
        for found, expected in wrong:
            evidence = {"name": "nfs_mounts_mounts", "found": found, "role": ROLE}
            plan.refuse("VARIABLE_INVALID", expected=expected, **evidence)
    if wanted or node["nfs"]["units"]:
        refuse_platform(plan, node)
    OURS.refuse_record(plan, node, ())
    for mount in wanted:
        mounted = _mounted(node, mount)
        if evidence_of := _taken(node, mount):
            plan.refuse("NFS_MOUNT_TAKEN", path=mount.path, evidence=evidence_of)
        elif mounted and not mount.is_at(mounted["source"]):
            source = mounted["source"]
            plan.refuse("NFS_MOUNT_DIFFERS", path=mount.path, found=source, expected=mount.what)
    stale = _stale(node, wanted)
    places = units.places(node["nfs"]["units"], stale)
    for path, users in node["nfs"]["users"].items():
        if any(units.is_at_or_below(path, place) for place in places):
            plan.refuse("NFS_MOUNT_USED", path=path, users=some(users))
    if plan.refusals:
        return plan.result()
    _plan_stale(plan, node, stale)
    if wanted:
        _plan_mounts(plan, node, wanted)
    if desired["state"] == "absent":
        _plan_no_packages(plan, node)
    OURS.plan_repair(plan, node)
    notice_reload(plan, node, OURS.install, DELETE, WRITE, OURS.remove)
    return plan.result()


def _taken(node: Node, mount: Mount) -> str:
    """Return what else mounts something at the path of a mount; empty: nothing does."""
    nfs, own = node["nfs"], units.files(mount)
    names = [posixpath.basename(path) for path in own]
    others = [path for path in nfs["others"] if posixpath.basename(path) in names]
    if mount.path in nfs["fstab"]:
        return "/etc/fstab has it"
    if others:
        return f"{', '.join(others)} has it"
    mounted = [one["source"] for one in nfs["mounted"] if one["path"] == mount.path]
    if mounted and not any(path in nfs["units"] for path in own):
        return f"{mounted[-1]} is mounted there"
    for one in nfs["mounted"]:
        # The daemon autofs owns all names below such a path. Automounts of systemd do not.
        is_map = one["type"] == "autofs" and not one["source"].startswith(_SYSTEMD)
        if is_map and mount.path.startswith(f"{one['path']}/"):
            return f"{one['source']} automounts what is below {one['path']}"
    return ""


def _stale(node: Node, wanted: list[Mount]) -> list[str]:
    """Return the units of ours that nobody wants any more."""
    kept = {path for mount in wanted for path in units.files(mount)}
    return [path for path in node["nfs"]["units"] if path not in kept]


def _plan_stale(plan: Plan[Data], node: Node, files: list[str]) -> None:
    names = [posixpath.basename(path) for path in files]
    plan.data["stale_mounts"] = [one for one in names if one.endswith(".mount")]
    plan.data["stale_automounts"] = [one for one in names if one.endswith(".automount")]
    # An empty file would be a unit that is masked, and no longer one of ours.
    plan.data["stale_files"] = [path for path in files if path not in node["nfs"]["mixed"]]
    plan.data["stale_blocks"] = [path for path in files if path in node["nfs"]["mixed"]]
    reason = f"nfs_mounts_mounts does not have {', '.join(names)}" if files else None
    plan.step(UNMOUNT, reason)
    plan.step(STOP, reason)
    plan.step(DELETE, reason)


def _plan_mounts(plan: Plan[Data], node: Node, wanted: list[Mount]) -> None:
    nfs = node["nfs"]
    package = "nfs-utils" if is_redhat(node) else "nfs-common"
    if package not in node["packages"]:
        OURS.plan_install(plan, node, {package: ""}, f"{package} is not installed")
    plan.data["mounts"] = [
        {
            "server": one.server,
            "export": one.export,
            "path": one.path,
            "version": one.version,
            "read_only": one.read_only,
            "squashed": one.squashed,
            "port": one.port("port"),
            "mount_port": one.port("mountport"),
            "security": one.security,
            "transport": one.transport,
        }
        for one in wanted
    ]
    desired = {path: lines for one in wanted for path, lines in units.files(one).items()}
    changed = {path: text for path, text in desired.items() if nfs["units"].get(path) != text}
    plan.data["units"] = [
        {"path": path, "block": "\n".join(lines)} for path, lines in changed.items()
    ]
    names = [posixpath.basename(path) for path in desired]
    unread = [one for one in nfs["unread"] if one in names]
    reasons = [f"not as wanted: {', '.join(changed)}"] if changed else []
    reasons += [f"systemd has not read {', '.join(unread)} since a change"] if unread else []
    plan.step(WRITE, "; ".join(reasons) or None)
    for mount in wanted:
        is_changed = any(path in changed for path in units.files(mount))
        if evidence := ", ".join(_differences(node, mount, is_changed=is_changed)):
            plan.notice("NFS_REMOUNT_DUE", path=mount.path, evidence=evidence)
    if not nfs["kernel"] or not nfs["automount"]:
        plan.notice("NFS_KERNEL_MISSING", release=node["kernel"]["release"])
        return
    idle = [one for one in wanted if not _runs(node, one)]
    plan.data["automounts"] = [f"{units.name(one.path)}.automount" for one in idle]
    plan.data["paths"] = [one.path for one in idle]
    paths = ", ".join(plan.data["paths"])
    plan.step(START, f"not started, or not at boot: {paths}" if idle else None)


def _mounted(node: Node, mount: Mount) -> Mounted | None:
    """Return what is mounted now at the path of a mount, upon its automount."""
    found = (one for one in reversed(node["nfs"]["mounted"]) if one["path"] == mount.path)
    return next((one for one in found if one["type"] != "autofs"), None)


def _differences(node: Node, mount: Mount, *, is_changed: bool) -> Iterator[str]:
    """Yield how what is mounted now differs, in every run. Not every option shows there."""
    mounted = _mounted(node, mount)
    if not mounted:
        return
    if mounted["read_only"] != mount.read_only:
        access = "read-only" if mounted["read_only"] else "read-write"
        yield f"it is mounted {access}"
    if mounted["version"] and not mount.has_version(mounted["version"]):
        yield f"it is mounted by NFS {mounted['version']}"
    if is_changed:
        yield "it was mounted with other units"


def _runs(node: Node, mount: Mount) -> bool:
    """Tell whether the automount of a path runs, and does at the next boot."""
    here = {one["type"] for one in node["nfs"]["mounted"] if one["path"] == mount.path}
    is_enabled = f"{units.name(mount.path)}.automount" in node["nfs"]["enabled"]
    return "autofs" in here and is_enabled


def _plan_no_packages(plan: Plan[Data], node: Node) -> None:
    names = OURS.added(node)
    plan.data["packages"] = names
    refuse_dependants(plan, node, names)
    plan.step(OURS.remove, f"this role installed {', '.join(names)}" if names else None)
    found = node["ours"]["packages"].get(ROLE)
    plan.data["packages_record"] = {"path": found["path"]} if found else None
    plan.step(OURS.forget, f"this role wrote {found['path']}" if found else None)
