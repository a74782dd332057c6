# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How does CRI-O get the NVIDIA runtime, and how does it lose it?"""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import Crio
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import nvidia_driver
from ansible_collections.metal.gpu.plugins.module_utils.read.version import is_newer
from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio import hooks, settings
from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio.next_start import (
    DropIn,
    refuse_fatal_start,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio.plan import (
    RESTART_REASON,
    refuse_config,
    refuse_openshift,
    unread,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    known_version,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import fingerprint
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.record import Record
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    Change,
    Edit,
    Plan,
    Step,
    actor,
    changes,
    edited,
    naming_rival,
    refuse_uneditable,
)

# The role has files of several engines. These edits are those for CRI-O.
EDITS = f"{runtime.ROLE}.crio"

REGISTER = Step("register_crio", "Register the NVIDIA runtime with CRI-O")
LOW_LEVEL = Step("low_level", "Tell the NVIDIA runtime where CRI-O's runtimes are")
RESTART = Step("restart_crio", "Restart CRI-O")
UNREGISTER = Step("unregister_crio", "Remove the NVIDIA runtime from CRI-O")

STEPS = (LOW_LEVEL, REGISTER, hooks.TURN_OFF, RESTART, UNREGISTER)

# Where the toolkit writes, under both names.
_CDI = {"/var/run/cdi", "/run/cdi"}
_DEFAULT = ("crio", "runtime", "default_runtime")
_LOW_LEVEL = ("nvidia-container-runtime", "runtimes")


class Data(runtime.Data, total=False):
    """What the tasks need to know."""

    crio_config: Edit | None  # None: CRI-O is not installed yet
    crio_toolkit: str  # the configuration of the toolkit
    crio_low_level: list[str]
    crio_hooks: list[str]
    crio_change: Change | None
    crio_edits: list[str]


def register_runtime(
    plan: Plan[Data], node: Node, desired: runtime.Desired, *, is_toolkit_new: bool
) -> None:
    """Plan the drop-in of CRI-O, and the runtimes that NVIDIA's runtime calls."""
    engine = node["engines"]["crio"]
    plan.data["crio_toolkit"] = nvidia_driver.TOOLKIT_CONFIG
    refuse_openshift(plan, node)
    refuse_config(plan, node)
    if not engine["installed"]:
        # The role crio runs before this one. What it installs is not observed yet.
        plan.data |= {"crio_config": None, "crio_low_level": [], "crio_hooks": []}
        plan.step(LOW_LEVEL, "CRI-O is not installed yet")
        plan.step(REGISTER, "CRI-O is not installed yet")
        plan.step(RESTART, RESTART_REASON)
        return
    version = known_version(plan, engines.CRIO, engine)
    if version is None:
        return
    if desired["cdi"] and is_newer(settings.CDI_SINCE, version):
        plan.refuse("CDI_UNSUPPORTED", engine="CRI-O", found=version, expected=settings.CDI_SINCE)
    read = engine["cdi_dirs"]
    if desired["cdi"] and not _CDI.intersection(one.rstrip("/") for one in read):
        plan.refuse("CRIO_CDI_UNREAD", found=", ".join(read))
    former = changes(node, EDITS, settings.DROP_IN)
    usable = _in_order(settings.low_level(engine), _list_of_admin(node))
    base = next((one.runtime for one in usable if settings.monitor(engine, one.runtime)), None)
    if base is None:
        found = ", ".join(engine["runtimes"]) or "none"
        plan.refuse("CRIO_RUNTIME_UNKNOWN", runtimes=found)
        return
    paths = _list_of_admin(node) or [one.path for one in usable]
    plan.data["crio_low_level"] = paths
    plan.step(LOW_LEVEL, _low_level_reason(node, paths, is_toolkit_new=is_toolkit_new))
    config = settings.edit(engine, base, default=runtime.NAME if desired["default"] else None)
    is_default_ours = _DEFAULT in former
    config["remove"] = [list(_DEFAULT)] if is_default_ours and not desired["default"] else []
    plan.data["crio_config"] = config
    wanted = settings.handler(engine, base)
    reason = _reason(engine, desired, wanted, is_default_ours=is_default_ours)
    reason = naming_rival(reason, node, EDITS, settings.DROP_IN)
    if reason:
        _refuse_later(plan, engine, reason, desired)
        obstacle = engine["config"]["obstacles"].get(settings.DROP_IN)
        refuse_uneditable(plan, settings.DROP_IN, obstacle)
    plan.step(REGISTER, reason)
    off = hooks.plan_hooks(plan, engine, is_permitted=desired["replace_oci_hooks"])
    plan.data["crio_hooks"] = off
    ours: Change = {"path": settings.DROP_IN, "actor": actor(EDITS)}
    change, unread_reason = unread(node)
    plan.data["crio_change"] = ours if reason else change
    plan.step(RESTART, RESTART_REASON if reason or off else unread_reason)
    if plan.has_step(RESTART) or not engine["running"]:
        refuse_fatal_start(plan, engine, _drop_in(engine, desired, former) if reason else None)


def _drop_in(
    engine: Crio, desired: runtime.Desired, former: Mapping[tuple[str, ...], object]
) -> DropIn:
    """Return what the drop-in has after this plan."""
    if desired["default"]:
        return DropIn(has_table=True, default=runtime.NAME)
    found = engine["config"]["defaults"].get(settings.DROP_IN)
    return DropIn(has_table=True, default=None if _DEFAULT in former else found)


def _list_of_admin(node: Node) -> list[str] | None:
    """Return the list of runtimes that the admin wrote for CRI-O; None if there is none."""
    found = node["toolkit"]["runtimes"]
    # The role edits other keys of the file, too, so the file can differ from what was written here.
    is_ours = any(
        change["key"] == [*_LOW_LEVEL] and change["after"] == fingerprint(found)
        for edit in node["ours"]["edits"]
        if edit["path"] == nvidia_driver.TOOLKIT_CONFIG and edit["actor"] == actor(EDITS)
        for change in edit["changes"]
    )
    known = [one.path for one in settings.low_level(node["engines"]["crio"])]
    return found if found and found[0] in known and not is_ours else None


def _in_order(usable: list[settings.LowLevel], chosen: list[str] | None) -> list[settings.LowLevel]:
    """Return the runtimes with the one first that the admin chose."""
    first = (chosen or [""])[0]
    return sorted(usable, key=lambda one: one.path != first)


def _low_level_reason(node: Node, paths: list[str], *, is_toolkit_new: bool) -> str | None:
    """Return why the toolkit's own configuration needs a change."""
    found = node["toolkit"]["runtimes"]
    if found == paths:
        return None
    if found is None or is_toolkit_new:
        return f"CRI-O's runtimes are in no folder of PATH: {', '.join(paths)}"
    return f"{nvidia_driver.TOOLKIT_CONFIG} names {', '.join(found)}, not {', '.join(paths)}"


def _reason(
    engine: Crio,
    desired: runtime.Desired,
    wanted: dict[str, object],
    *,
    is_default_ours: bool,
) -> str | None:
    """Return why CRI-O needs a change, from its effective configuration."""
    found = engine["runtimes"].get(runtime.NAME)
    if found is None:
        return "CRI-O has no runtime nvidia"
    reasons = []
    if found["binary"] != runtime.PROGRAM:
        reasons.append(f"its runtime nvidia runs {found['binary'] or 'the program nvidia'}")
    if _is_ours(engine):
        keys = {"monitor_path": found["monitor"], "runtime_root": found["root"]}
        differing = [key for key, value in keys.items() if (value or None) != wanted.get(key)]
        if differing:
            names = " and ".join(differing)
            reasons.append(f"its runtime nvidia has another {names} than its default runtime")
    is_default = engine["default_runtime"] == runtime.NAME
    if is_default != bool(desired["default"]) and (desired["default"] or is_default_ours):
        reasons.append(f"its default runtime is {engine['default_runtime'] or 'its own'}")
    return ", ".join(reasons) or None


def _is_ours(engine: Crio) -> bool:
    """Whether the table of the NVIDIA runtime is the one in the drop-in of this collection."""
    return engine["config"]["runtime_files"].get(runtime.NAME, [])[-1:] == [settings.DROP_IN]


def _refuse_later(plan: Plan[Data], engine: Crio, reason: str, desired: runtime.Desired) -> None:
    """Refuse files whose settings would replace those of the drop-in."""
    config = engine["config"]
    found = set(config["runtime_files"].get(runtime.NAME, []))
    if desired["default"]:
        found |= set(config["defaults"])
    if files := [path for path in settings.later(config["files"]) if path in found]:
        plan.refuse(
            "CRIO_DROP_IN_REPLACED", files=", ".join(files), path=settings.DROP_IN, reason=reason
        )


def unregister_runtime(plan: Plan[Data], node: Node) -> None:
    """Plan to restore the files that register_runtime changed."""
    engine = node["engines"]["crio"]
    edits = edited(node, EDITS)
    plan.data["crio_edits"] = edits
    if not edits:
        # A removal that stopped before the restart: the runtime goes now, and CRI-O still has it.
        files = engine["config"]["runtime_files"].get(runtime.NAME)
        is_unread = engine["running"] and runtime.NAME in engine["runtimes"] and not files
        if is_unread and Record.of(node, runtime.ROLE).added:
            refuse_config(plan, node)
            plan.step(RESTART, "CRI-O runs with the runtime nvidia, which no file has any more")
            refuse_fatal_start(plan, engine)
        return
    refuse_config(plan, node)
    for path in edits:
        refuse_uneditable(plan, path, engine["config"]["obstacles"].get(path))
    plan.step(UNREGISTER, f"this role changed {', '.join(edits)}")
    read = [path for path in edits if path != nvidia_driver.TOOLKIT_CONFIG]
    plan.step(RESTART, RESTART_REASON if read and engine["running"] else None)
    if plan.has_step(RESTART):
        is_ours = settings.DROP_IN in edits
        refuse_fatal_start(plan, engine, DropIn(has_table=False, default=None) if is_ours else None)
