# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How does containerd get the NVIDIA runtime, and how does it lose it?"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import Containerd
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import nvidia_driver
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import (
    embedded,
    settings,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd.plan import (
    RESTART,
    RESTART_REASON,
    refuse_config,
    refuse_fatal_start,
    refuse_unknown,
    unread,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    known_version,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.record import Record
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    Change,
    Plan,
    actor,
    edited,
    naming_rival,
    refuse_conflict,
    refuse_uneditable,
)

UNREGISTER = embedded.UNREGISTER

STEPS = (runtime.REGISTER, RESTART, UNREGISTER, *embedded.STEPS)

Data = embedded.Data


def register_runtime(
    plan: Plan[Data], node: Node, desired: runtime.Desired, *, is_toolkit_new: bool
) -> None:
    """Plan the configuration of containerd, which needs no restart for a new toolkit."""
    engine = node["engines"]["containerd"]
    if engine["home"]:
        embedded.register_runtime(
            plan, node, desired, engine["home"], is_toolkit_new=is_toolkit_new
        )
        return
    refuse_config(plan, node)
    refuse_unknown(plan, node)
    if not engine["installed"]:
        # The containerd role runs before this one. What it installs is not observed yet.
        plan.data["config"] = None
        plan.step(runtime.REGISTER, "containerd is not installed yet")
        plan.step(RESTART, RESTART_REASON)
        return
    version = known_version(plan, engines.CONTAINERD, engine)
    if version is None:
        return
    if desired["cdi"] and not settings.reads_cdi(version):
        plan.refuse(
            "CDI_UNSUPPORTED",
            engine=engines.CONTAINERD,
            found=version,
            expected=settings.CDI_SINCE,
        )
    if engine["cri_enabled"] is False and not desired["cri_is_planned"]:
        plan.refuse("CRI_DISABLED", path=engine["config"]["path"])
    default = settings.default(node, desired)
    driver = settings.cgroup_driver(node, version)
    config = settings.edit(engine, version, cdi=desired["cdi"], default=default, driver=driver)
    plan.data["config"] = config
    _notice_cgroup_drivers(plan, engine, driver)
    reason = _reason(engine, desired, default, driver)
    reason = naming_rival(reason, node, runtime.ROLE, config["path"])
    shadows = [] if settings.merges(version) else engine["config"]["imported_cri"]
    if reason and shadows:
        plan.refuse(
            "CONTAINERD_IMPORT_REPLACES",
            files=", ".join(shadows),
            path=config["path"],
            found=engine["version"],
        )
    others = engine["config"]["imported_nvidia"] if settings.merges(version) else []
    later = settings.read_later(engine["config"], config["path"], others)
    if reason and later:
        plan.refuse(
            "CONTAINERD_RUNTIME_CONTESTED",
            files=", ".join(later),
            path=config["path"],
            evidence=reason,
        )
    if reason and config["path"] == engine["config"]["path"]:
        refuse_uneditable(plan, engine["config"]["path"], engine["config"]["obstacle"])
        refuse_conflict(plan, engine["config"]["outline"], config)
    ours_now: Change = {"path": config["path"], "actor": actor(runtime.ROLE)}
    change, unread_reason = unread(node)
    plan.data["change"] = ours_now if reason else change
    plan.step(runtime.REGISTER, reason)
    plan.step(RESTART, RESTART_REASON if reason else unread_reason)
    refuse_fatal_start(plan, node, settings.after_edit(engine, default) if reason else None)


def _notice_cgroup_drivers(plan: Plan[Data], engine: Containerd, driver: str | None) -> None:
    """Name a difference to the default runtime. The NVIDIA runtime gets the driver by its edit."""
    name = engine["default_runtime"] or ""
    found = engine["runtimes"].get(name)
    if driver is None or found is None or name == runtime.NAME or not settings.is_runc(found):
        return
    if found["systemd_cgroup"] != (driver == "systemd"):
        wanted = str(not found["systemd_cgroup"]).lower()
        plan.notice(
            "CGROUP_DRIVERS_DIFFER",
            engine=engines.CONTAINERD,
            driver=driver,
            found=f"{'systemd' if found['systemd_cgroup'] else 'cgroupfs'} in the runtime {name}",
            setting=f"SystemdCgroup = {wanted} in the options of this runtime",
            path=engine["config"]["path"],
        )


def _reason(
    engine: Containerd, desired: runtime.Desired, default: settings.Default, driver: str | None
) -> str | None:
    """Return why containerd needs a change, from its effective configuration."""
    found = engine["runtimes"].get(runtime.NAME)
    if found is None:
        return "containerd has no runtime nvidia"
    reasons = []
    if found["binary"] != runtime.PROGRAM:
        reasons.append(f"its runtime nvidia runs {found['binary'] or 'runc'}")
    name = settings.model(engine, default)
    like = engine["runtimes"].get(name)
    if found["systemd_cgroup"] != settings.wants_systemd(engine, default, driver):
        like_kubelet = f"its runtime nvidia and the kubelet ({driver}) differ in SystemdCgroup"
        like_model = f"its runtimes {name} and nvidia differ in SystemdCgroup"
        reasons.append(like_kubelet if driver else like_model)
    if like and like["base_runtime_spec"] not in ("", found["base_runtime_spec"]):
        reasons.append(f"its runtime nvidia lacks the base_runtime_spec of {name}")
    if settings.lacks_default(engine):
        reasons.append("its default runtime runc has no entry, without which CRI ends at the start")
    reasons += settings.differences(engine, desired, is_default_ours=default.is_ours)
    return ", ".join(reasons) or None


def unregister_runtime(plan: Plan[Data], node: Node) -> None:
    """Plan to restore the files that register_runtime changed."""
    engine = node["engines"]["containerd"]
    # The same actor sets the isolation in the toolkit's own file, which containerd does not read.
    edits = [
        path
        for path in edited(node, runtime.ROLE)
        if path.endswith(".toml") and path != nvidia_driver.TOOLKIT_CONFIG
    ]
    plan.data["containerd_edits"] = edits
    if edits:
        refuse_config(plan, node)
        if engine["config"]["path"] in edits:
            refuse_uneditable(plan, engine["config"]["path"], engine["config"]["obstacle"])
        plan.step(UNREGISTER, f"this role changed {', '.join(edits)}")
    if engine["home"]:
        embedded.unregister_runtime(plan, node, engine["home"], edits)
    elif edits:
        plan.step(RESTART, RESTART_REASON if engine["running"] else None)
    elif _is_unfinished(node):
        refuse_config(plan, node)
        changed = ", ".join(engine["changed_since_start"])
        plan.step(RESTART, f"{changed} changed after containerd started")
    refuse_fatal_start(plan, node, settings.after_removal(node) if edits else None)


def _is_unfinished(node: Node) -> bool:
    """Tell whether a removal stopped before the restart, so that containerd runs with what goes.

    The restored file has no history any more. So it counts that this containerd serves the node,
    that no file has our runtime, and that one was written since the start.
    """
    engine = node["engines"]["containerd"]
    found = engine["runtimes"].get(runtime.NAME)
    return (
        bool(engine["changed_since_start"])
        and bool(Record.of(node, runtime.ROLE).added)
        and engines.choose(node, engines.AUTO) == engines.CONTAINERD
        and (found is None or found["binary"] != runtime.PROGRAM)
    )
