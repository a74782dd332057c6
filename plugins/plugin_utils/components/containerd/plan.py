# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does the node have a containerd that a kubelet can use?

Installs containerd if it is missing. An existing containerd stays the admin's: the plan only starts
it, and corrects the packaged configuration, which disables the CRI plugin.
"""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import Containerd
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import containerd
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import settings
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import (
    packages as docker_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines.reload import (
    notice_reload,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    refuse_platform,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import (
    held_by_admin,
    installed,
    notice_unheld,
    refuse_dependants,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.record import Record
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.role import RolePackages
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    Change,
    NoData,
    Plan,
    PlanResult,
    Step,
    actor,
    edited,
    refuse_conflict,
    refuse_lost_history,
    refuse_uneditable,
    unread_change,
    unread_reason,
)

ROLE = "containerd"
PACKAGE = "containerd.io"
OURS = RolePackages(
    ROLE, "metal-gpu-docker", "containerd", "the Docker repository", "the containerd package"
)
CRI = Step("cri", "Enable the CRI plugin of containerd")
RESTART = Step("restart", "Restart containerd")
START = Step("start", "Start containerd")
RESTORE = Step("restore", "Restore the configuration of containerd")
RESTART_BACK = Step("restart_back", "Restart containerd with its former configuration")

STEPS = (*OURS.steps, CRI, RESTART, START, RESTORE, RESTART_BACK)

DISTRIBUTION = "containerd"
# containerd.io contains runc, and conflicts with the packages of the distribution.
CONFLICTS = (DISTRIBUTION, "runc")
CONFIG = "/etc/containerd/config.toml"
DOCKER_ROLE = "docker_ce"  # installs the same package

RESTART_REASON = "containerd reads its configuration only when it starts; containers keep running"


def plan(node: Node, desired: Desired) -> PlanResult:
    """Plan containerd."""
    plan = Plan[Data](desired["host"], {})
    refuse_platform(plan, node)
    engines.refuse(plan, node, engines.CONTAINERD)
    if desired["state"] == "present":
        engines.refuse_distribution(plan, node)
        refuse_unknown(plan, node)
        engines.refuse_stopped_distribution(plan, node)
    refuse_config(plan, node)
    OURS.refuse_record(plan, node, installed(node, [PACKAGE]))
    if plan.refusals:
        return plan.result()
    if desired["state"] == "absent":
        _plan_absent(plan, node)
    elif node["engines"]["containerd"]["home"]:
        pass  # the distribution's own
    elif node["engines"]["containerd"]["installed"]:
        OURS.notice_kept(plan, node, PACKAGE, "containerd_version", desired["version"])
        _plan_installed(plan, node)
    else:
        _plan_missing(plan, node, desired)
    if desired["state"] == "present":
        OURS.notice_sources(plan, node, desired)
    OURS.plan_repair(plan, node)
    notice_reload(plan, node, OURS.install, OURS.remove)
    refuse_lost_history(plan, node, ROLE)
    refuse_fatal_start(plan, node)
    if desired["state"] == "present":
        _notice_fatal_boot(plan, node)
    return plan.result()


def refuse_config(plan: Plan[NoData], node: Node) -> None:
    """Refuse a configuration that cannot be read."""
    error = node["engines"]["containerd"]["config"]["error"]
    if error:
        plan.refuse("CONTAINERD_CONFIG_INVALID", error=error)


def refuse_unknown(plan: Plan[NoData], node: Node) -> None:
    """Refuse a containerd whose settings of the CRI plugin nobody here has ever seen."""
    engine = node["engines"]["containerd"]
    if engine["cri_enabled"] is not None or engine["config"]["error"]:
        return
    if source := engine["config"]["source"]:  # None: containerd did not answer
        tables = ", ".join(containerd.CRI_SECTIONS)
        plan.refuse("CONTAINERD_UNKNOWN", source=source, found=engine["version"], expected=tables)


def refuse_fatal_start(plan: Plan[NoData], node: Node, after: settings.After | None = None) -> None:
    """Refuse to start containerd if it, or its CRI plugin, would not start.

    A containerd that runs can have such a configuration, because it reads it only when it starts.
    `containerd config dump` accepts all of these. `after` is what an edit of the plan leaves.
    """
    engine = node["engines"]["containerd"]
    for evidence in _fatal(engine, after or settings.now(engine)):
        if plan.has_step(RESTART, START, RESTART_BACK):
            plan.refuse("CONTAINERD_FATAL", path=engine["config"]["path"], evidence=evidence)


def _fatal(engine: Containerd, after: settings.After) -> Iterator[str]:
    """Yield why containerd would not serve the kubelet after its next start."""
    missing = engine["config"]["missing_imports"]
    if missing:
        yield f"these imported files do not exist: {', '.join(missing)}"
    if engine["missing_specs"]:
        texts = "; ".join(engine["missing_specs"])
        yield f"these files of base_runtime_spec do not exist: {texts}"
    if engine["cri_enabled"] and after.default is not None and after.default not in after.runtimes:
        known = ", ".join(after.runtimes) or "none"
        found = f"default_runtime_name is '{after.default}', and containerd.runtimes has {known}"
        yield f"{after.when}{found}"
    yield from engine["conflicts"]


def _notice_fatal_boot(plan: Plan[NoData], node: Node) -> None:
    """Name what ends a running containerd at its next start, where this plan has none."""
    engine = node["engines"]["containerd"]
    evidence = "; ".join(_fatal(engine, settings.now(engine)))
    is_left_alone = engine["running"] and not plan.has_step(RESTART)
    if evidence and is_left_alone and not plan.refusals:
        plan.notice("ENGINE_NOT_STARTABLE", engine="containerd", evidence=evidence)


def _plan_missing(plan: Plan[Data], node: Node, desired: Desired) -> None:
    system = systems.supported(node)
    packages = docker_packages.containerd(system, desired["version"])
    OURS.plan_repository(plan, node, desired, system.docker)
    replaced = installed(node, CONFLICTS)
    if held := held_by_admin(node, replaced, ()):
        plan.refuse("PACKAGES_HELD", packages=", ".join(held), names=" ".join(held))
    also = f"; this removes the conflicting {', '.join(replaced)}" if replaced else ""
    ours = OURS.plan_install(plan, node, packages, f"containerd is not installed{also}")
    plan.data["may_remove"] += replaced
    OURS.plan_hold(plan, node, ours)
    table = settings.cri_plugin(None, desired["version"])
    reason = "Docker's package disables the CRI plugin"
    _plan_cri(plan, node, CONFIG, table, desired["version"], reason)


def _plan_installed(plan: Plan[Data], node: Node) -> None:
    engine = node["engines"]["containerd"]
    config = engine["config"]
    if OURS.of_role(node):
        OURS.plan_hold(plan, node, {PACKAGE: ""})
    elif PACKAGE not in Record.of(node, DOCKER_ROLE).ours:
        notice_unheld(plan, node, (PACKAGE, DISTRIBUTION))
    if engine["cri_enabled"] is False:
        # The file that Docker's package ships has no version. A file with a version is the admin's,
        # who disabled the plugin on purpose. But nvidia-ctk adds `version = 1` and a runtime to the
        # packaged file, and leaves the plugin disabled.
        is_of_nvidia_ctk = config["version"] == 1 and "cri" in config["cri_tables"]
        if config["version"] is None or is_of_nvidia_ctk:
            reason = f"{config['path']} disables the CRI plugin, as Docker's package ships it"
            if is_of_nvidia_ctk:
                reason += ", and nvidia-ctk has added a runtime to it"
            refuse_uneditable(plan, config["path"], config["obstacle"])
            version = engine["version"] or ""
            table = settings.cri_plugin(config["version"], version, config["cri_tables"])
            _plan_cri(plan, node, config["path"], table, version, reason)
            refuse_conflict(plan, config["outline"], plan.data["config"])
        else:
            plan.refuse("CRI_DISABLED", path=config["path"])
    elif not engine["running"]:
        plan.step(START, "containerd is not running")
    else:
        plan.data["change"], why = unread(node)
        plan.step(RESTART, why)


def unread(node: Node) -> tuple[Change | None, str | None]:
    """Return our change that containerd has not read yet, and why that needs a restart."""
    engine = node["engines"]["containerd"]
    reason = unread_reason(engine, drop_in=settings.DROP_IN, name="containerd")
    return unread_change(node, engine["changed_since_start"]), reason


def _plan_cri(
    plan: Plan[Data], node: Node, path: str, table: str, version: str, reason: str
) -> None:
    """Plan the edit of the packaged file, which has no version."""
    # systemd manages the node's cgroups. Two cgroup managers disturb each other's pods.
    systemd = settings.cgroup_driver(node, version) != "cgroupfs"
    plan.data["change"] = {"path": path, "actor": actor(ROLE)}
    plan.data["config"] = {
        "path": path,
        "discard": [{"path": ["disabled_plugins"], "items": ["cri"]}],
        "merge": {
            "plugins": {
                table: {
                    "containerd": {
                        "runtimes": {
                            "runc": {
                                "runtime_type": "io.containerd.runc.v2",
                                "options": {"SystemdCgroup": systemd},
                            }
                        }
                    }
                }
            }
        },
    }
    plan.step(CRI, reason)
    plan.step(RESTART, RESTART_REASON)


def _plan_absent(plan: Plan[Data], node: Node) -> None:
    """Plan the removal. The kubelet and Docker need containerd, so the admin removes them first."""
    edits, packages = edited(node, ROLE), OURS.added(node)
    plan.data |= {"edits": edits, "packages": packages}
    if (edits or packages) and (
        node["kubelet"]["running"] is not False or node["engines"]["docker"]["installed"]
    ):
        plan.refuse("CONTAINERD_IN_USE")
    refuse_dependants(plan, node, packages)
    if edits:
        plan.step(RESTORE, f"this role changed {', '.join(edits)}")
        if not packages and node["engines"]["containerd"]["running"]:
            plan.step(RESTART_BACK, "containerd reads its configuration only when it starts")
    if packages:
        plan.step(OURS.remove, f"this role installed {PACKAGE}")
    elif node["engines"]["containerd"]["installed"]:
        plan.notice("ENGINE_OF_ADMIN", engine="containerd")
    OURS.plan_cleanup(plan, node)
