# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How does Docker get the NVIDIA runtime, and how does it lose it?"""

from __future__ import annotations

from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read.docker import DEFAULT_RUNTIME
from ansible_collections.metal.gpu.plugins.module_utils.read.kubelet import ASKS_CRI_SINCE
from ansible_collections.metal.gpu.plugins.module_utils.read.version import release
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import settings
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.plan import (
    refuse_config,
    refuse_silent,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    known_version,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    Edit,
    Plan,
    Step,
    changes,
    edited,
    naming_rival,
    refuse_conflict,
    refuse_uneditable,
)

RELOAD = Step("reload", "Reload Docker")
RESTART = Step("restart_docker", "Restart Docker")
DISUSE = Step("disuse", "Stop Docker from using the NVIDIA runtime")
UNREGISTER = Step("unregister_docker", "Remove the NVIDIA runtime from daemon.json")

STEPS = (runtime.REGISTER, RELOAD, RESTART, DISUSE, UNREGISTER)

_RELOAD_REASON = "Docker applies its runtimes without a restart; containers keep running"
_DEFAULT = ("default-runtime",)
_PROGRAM = "dockerd"


class Expected(TypedDict):
    """What Docker must report after the change."""

    default_runtime: str | None
    runtimes: list[str]


class Data(runtime.Data, total=False):
    """What the tasks need to know."""

    has_changed: bool  # whether Docker still has to apply something, which it can reject
    validates: bool
    expected: Expected
    way_back: Edit
    docker_edits: list[str]


def register_runtime(
    plan: Plan[Data], node: Node, desired: runtime.Desired, *, is_toolkit_new: bool
) -> None:
    """Plan daemon.json, where the runtime becomes the default one unless told otherwise.

    cri-dockerd has no RuntimeClass support, so only the default runtime gives a pod a GPU.
    """
    engine = node["engines"]["docker"]
    if not engine["installed"]:
        # The role docker_ce runs before this one. What it installs is not observed yet.
        refuse_config(plan, node)
        plan.data["config"] = None
        plan.step(runtime.REGISTER, "Docker is not installed yet")
        if is_toolkit_new:
            plan.step(RESTART, "Docker starts before the container toolkit is installed")
        else:
            plan.step(RELOAD, _RELOAD_REASON)
        return
    refuse_silent(plan, engine)
    version = known_version(plan, _PROGRAM, engine)
    if version is None:
        return
    default: str | None = runtime.NAME
    if desired["default"] is False:
        # A reload ignores removed keys, so the file must name the former default.
        former = changes(node, runtime.ROLE, ".json")
        restored = runtime.text(former.get(_DEFAULT)) or DEFAULT_RUNTIME
        default = restored if _DEFAULT in former else None
    config = settings.edit(engine, version, default=default, cdi=desired["cdi"])
    refuse_config(plan, node, config["merge"])
    for clash in settings.other_programs(engine):
        plan.refuse("DOCKER_FLAG_CLASH", path=config["path"], **clash._asdict())
    _notice_cgroup_drivers(plan, node)
    reason = settings.change_reason(engine, config["merge"], default=default)
    reason = naming_rival(reason, node, runtime.ROLE, config["path"])
    if reason and config["merge"] and not engine["config"]["error"]:
        refuse_uneditable(plan, engine["config"]["path"], engine["config"]["obstacle"])
        refuse_conflict(plan, engine["config"]["outline"], config)
    plan.data |= {
        "config": config,
        "has_changed": reason is not None,
        "validates": settings.validates(version),
        "expected": {
            "default_runtime": default or engine["default_runtime"],
            "runtimes": [runtime.NAME],
        },
    }
    # A run that stopped after this step leaves a correct file and an engine that has not read it.
    plan.step(runtime.REGISTER, reason if config["merge"] else None)
    pending = settings.pending(engine, version, cdi=desired["cdi"], is_toolkit_new=is_toolkit_new)
    if pending and (desired["engine_is_new"] or desired["restart_ok"]):
        why = (
            "this run installed Docker"
            if desired["engine_is_new"]
            else "nvidia_container_runtime_restart_ok is true"
        )
        plan.step(RESTART, f"Docker may need a restart for {pending}; {why}")
        return
    plan.step(RELOAD, _RELOAD_REASON if reason else None)
    if pending:
        plan.notice("DOCKER_RESTART_DUE", found=engine["version"], unknown=pending)


def _notice_cgroup_drivers(plan: Plan[Data], node: Node) -> None:
    """Name a difference to a kubelet that does not take the cgroup driver of cri-dockerd."""
    found, kubelet = node["engines"]["docker"]["cgroup_driver"], node["kubelet"]["version"]
    driver = node["cgroup"]["driver"]
    is_own = kubelet is not None and release(kubelet) < ASKS_CRI_SINCE
    if is_own and found and driver and found != driver:
        plan.notice(
            "CGROUP_DRIVERS_DIFFER",
            engine=engines.DOCKER,
            driver=driver,
            found=found,
            setting=f'"exec-opts": ["native.cgroupdriver={driver}"]',
            path=node["engines"]["docker"]["config"]["path"],
        )


def unregister_runtime(plan: Plan[Data], node: Node) -> None:
    """Plan to restore daemon.json, after Docker stopped to use what goes."""
    engine = node["engines"]["docker"]
    edits = [path for path in edited(node, runtime.ROLE) if path.endswith(".json")]
    plan.data["docker_edits"] = edits
    if not edits:
        return
    refuse_config(plan, node)
    refuse_uneditable(plan, engine["config"]["path"], engine["config"]["obstacle"])
    refuse_silent(plan, engine)
    former = changes(node, runtime.ROLE, ".json")
    bound = engine["made_with"].get(runtime.NAME)
    if bound and former.get(("runtimes", runtime.NAME, "path"), "kept") is None:
        plan.notice("CONTAINERS_OF_RUNTIME", containers=", ".join(bound))
    version = known_version(plan, _PROGRAM, engine) if engine["running"] else None
    if version is not None:
        way_back = settings.way_back(engine, former)
        default = runtime.text(way_back["merge"].get("default-runtime"))
        plan.data |= {
            "way_back": way_back,
            "validates": settings.validates(version),
            "expected": {
                "default_runtime": default or engine["default_runtime"],
                "runtimes": [],
            },
        }
        plan.step(DISUSE, "a reload ignores removed keys")
        plan.step(RELOAD, _RELOAD_REASON)
    plan.step(UNREGISTER, f"this role changed {', '.join(edits)}")
