# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How does the containerd of k3s, RKE2 or k0s get the NVIDIA runtime, and how does it lose it?

The distribution generates the main file, so the role never edits it. It writes a drop-in, and only
if the distribution does not find the runtime by itself (docs/decisions/045-distributions.md).
"""

from __future__ import annotations

from posixpath import basename, join
from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import Containerd, Home
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read.version import release
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import settings
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd.plan import (
    refuse_config,
    refuse_unknown,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    known_version,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.record import Record
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    Change,
    Edit,
    Plan,
    Step,
    actor,
    naming_rival,
    unread_reason,
)

RESTART = Step("restart_distribution", "Restart the Kubernetes distribution")
AWAIT = Step("await_containerd", "Wait until the distribution has restarted its containerd")
UNREGISTER = Step("unregister", "Remove the NVIDIA runtime from containerd")

STEPS = (RESTART, AWAIT)

# Older ones have CDI off, and their drop-ins have another format.
SINCE = "2.0"


class Restarted(TypedDict):
    """What the tasks need to know to restart a distribution, and to wait for it."""

    name: str
    unit: str
    socket: str | None
    health_url: str | None


class Data(runtime.Data, total=False):
    """What the tasks need to know."""

    change: Change | None
    containerd_edits: list[str]
    distribution: Restarted


def register_runtime(
    plan: Plan[Data], node: Node, desired: runtime.Desired, home: Home, *, is_toolkit_new: bool
) -> None:
    """Plan the drop-in, if one is needed, and the restart."""
    engine = node["engines"]["containerd"]
    plan.data |= {"distribution": restarted(node, home), "config": None, "change": None}
    refuse_config(plan, node)
    refuse_unknown(plan, node)
    version = known_version(plan, engines.CONTAINERD, engine)
    is_old = version is not None and release(version) < release(SINCE)
    for path in home["former_drop_ins"]:
        if is_old:  # the running containerd needs this format
            plan.notice("DROP_IN_BEFORE_UPGRADE", path=path, found=version, name=home["name"])
        else:
            plan.refuse("DROP_IN_FORMER", path=path, name=home["name"])
    if version is None:
        return
    default = settings.default(node, desired)
    is_found_at_start = _finds_at_start(home, engine, is_toolkit_new=is_toolkit_new)
    reason = _reason(
        engine, desired, is_default_ours=default.is_ours, is_found_at_start=is_found_at_start
    )
    restart = f"{home['name']} reads its settings only when it starts" if reason else None
    if is_found_at_start:
        restart = f"{home['name']} looks for the NVIDIA runtime only when it starts"
    restart = restart or unread_reason(engine, drop_in=settings.DROP_IN, name="its containerd")
    if restart and is_old:  # a node without work is left alone
        plan.refuse("DISTRIBUTION_TOO_OLD", found=version, expected=SINCE, name=home["name"])
        return
    if reason:
        edit = _edit(engine, home, version, desired, default)
        if edit is None:
            _refuse_unwritable(plan, home, engine, version, reason)
            return
        reason = naming_rival(reason, node, runtime.ROLE, edit["path"])
        plan.data["config"] = edit
        plan.data["change"] = {"path": edit["path"], "actor": actor(runtime.ROLE)}
        plan.step(runtime.REGISTER, reason)
    if reason and _applies_itself(home):
        plan.step(AWAIT, f"{home['name']} watches {home['watched']}")
        return
    _plan_restart(plan, home, desired, restart)


def restarted(node: Node, home: Home) -> Restarted:
    """Return what the tasks need to know to restart a distribution."""
    return {
        "name": home["name"],
        "unit": home["unit"],
        "socket": node["engines"]["containerd"]["socket"],
        "health_url": node["kubelet"]["health_url"],
    }


def _applies_itself(home: Home) -> bool:
    return home["watched"] is not None and home["is_managed"]


def _finds_at_start(home: Home, engine: Containerd, *, is_toolkit_new: bool) -> bool:
    """Whether the runtime is missing only because the distribution started before it was there."""
    return (
        runtime.NAME not in engine["runtimes"]
        and home["detects_runtimes"]
        and home["runtime_in_path"]
        and home["template_lists_runtimes"]
        and (is_toolkit_new or not home["started_after_runtime"])
    )


def _reason(
    engine: Containerd, desired: runtime.Desired, *, is_default_ours: bool, is_found_at_start: bool
) -> str | None:
    """Return why containerd needs a drop-in, from its effective configuration."""
    reasons = []
    found = engine["runtimes"].get(runtime.NAME)
    if found is None and not is_found_at_start:
        reasons.append("its containerd has no runtime nvidia")
    # The path is one of the distribution's PATH, which differs between systems.
    if found and basename(found["binary"]) != basename(runtime.PROGRAM):
        reasons.append(f"its runtime nvidia runs {found['binary'] or 'runc'}")
    reasons += settings.differences(engine, desired, is_default_ours=is_default_ours)
    return ", ".join(reasons) or None


def _edit(
    engine: Containerd,
    home: Home,
    version: str,
    desired: runtime.Desired,
    default: settings.Default,
) -> Edit | None:
    """Return the drop-in; None if the distribution reads none."""
    edit = settings.edit(engine, version, cdi=desired["cdi"], default=default)
    if _applies_itself(home) and home["watched"]:
        # Its file can import a summary that it writes itself, in place of the folder.
        edit["path"] = join(home["watched"], settings.DROP_IN)
        edit["merge"] = {"version": engine["config"]["version"] or 3, **edit["merge"]}
    elif home["is_managed"] and edit["path"] == engine["config"]["path"]:
        return None
    return edit


def _refuse_unwritable(
    plan: Plan[Data], home: Home, engine: Containerd, version: str, reason: str
) -> None:
    """Refuse a distribution that does not find the runtime, and whose file imports no drop-ins."""
    path = engine["config"]["path"]
    if engine["config"]["imports"]:
        imports = ", ".join(engine["config"]["imports"])
        why = f"{path} imports {imports}, and containerd {version} adds no folder of drop-ins by it"
    elif home["template"]:
        why = f"{home['template']} has no imports of drop-ins"
    else:
        why = f"{path} imports no drop-ins"
    if not home["runtime_in_path"]:
        why += f", and the PATH of {home['unit']} lacks /usr/bin"
    evidence = f"{reason}; {why}"
    plan.refuse("RUNTIME_NOT_DETECTED", evidence=evidence, path=path, **_names(home))


def _names(home: Home) -> dict[str, str]:
    return {"name": home["name"], "unit": home["unit"]}


def _plan_restart(
    plan: Plan[Data], home: Home, desired: runtime.Desired, reason: str | None
) -> None:
    """Plan the restart, which is the admin's to permit: it restarts the kubelet, too."""
    if reason and not desired["restart_ok"]:
        plan.refuse("DISTRIBUTION_RESTART", reason=reason, **_names(home))
    plan.step(RESTART, reason)


def unregister_runtime(plan: Plan[Data], node: Node, home: Home, edits: list[str]) -> None:
    """Plan what follows from the removal of our drop-in."""
    plan.data["distribution"] = restarted(node, home)
    if edits and node["engines"]["containerd"]["running"] and _applies_itself(home):
        plan.step(AWAIT, f"{home['name']} watches {home['watched']}")


def plan_forget(plan: Plan[Data], node: Node, *, restart_ok: bool) -> None:
    """Plan the restart with which the distribution forgets the runtime."""
    engine = node["engines"]["containerd"]
    home = engine["home"]
    if home is None or not engine["running"] or plan.has_step(AWAIT):
        return
    loses_toolkit = home["detects_runtimes"] and bool(Record.of(node, runtime.ROLE).added)
    is_removed = loses_toolkit and runtime.NAME in engine["runtimes"]
    if not is_removed and not plan.has_step(UNREGISTER):
        return
    if restart_ok:
        plan.step(RESTART, f"{home['name']} forgets the NVIDIA runtime only when it starts")
