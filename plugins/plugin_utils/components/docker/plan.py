# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does the node have a Docker Engine that the kubelet can use?

Installs Docker's own packages if there is no engine. An existing engine stays the admin's: the plan
only starts it, and writes the desired options. It replaces a distribution's engine only if
replace_distribution is true.

Source: https://docs.docker.com/engine/install/
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import Container, Docker
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import docker
from ansible_collections.metal.gpu.plugins.module_utils.read.version import upstream_version
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import (
    cri_dockerd,
    leftovers,
    options,
    proxy,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import (
    packages as docker_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import (
    settings as docker_keys,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.packages import (
    OURS,
    PACKAGE,
    ROLE,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.shapes import (
    Data,
    Desired,
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
    install_reason,
    installed,
    notice_unheld,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.record import Record
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    NoData,
    Plan,
    PlanResult,
    Step,
    edited,
)

PACKAGES = (PACKAGE, "docker-ce-cli", "containerd.io")
RECORD = Step("record", "Record the running containers")
START = Step("start", "Start Docker")
CONTAINERS = Step("containers", "Start the recorded containers")
STOP_SOCKET = Step("stop_socket", "Stop the socket of Docker")
DISARM = Step("disarm", "Remove the purge script of docker.io")
USERS = Step("users", "Add users to the group docker")

STEPS = (
    *(*OURS.steps, *leftovers.STEPS, RECORD, START, CONTAINERS, STOP_SOCKET, DISARM),
    *(*options.STEPS, *proxy.STEPS, *cri_dockerd.STEPS, USERS),
)

# Engines of distributions, and packages that conflict with docker-ce or containerd.io. The package
# manager removes them while it installs those two. Their data and settings stay.
_PLUGIN = re.compile(r"docker-[a-z0-9.+-]+", re.ASCII)
DISTRIBUTION = ("docker.io", "docker-engine", "moby-engine", "docker")
CONFLICTS = (*DISTRIBUTION, "docker-cli", "podman-docker", "containerd", "runc")


def plan(node: Node, desired: Desired) -> PlanResult:
    """Plan Docker."""
    plan = Plan[Data](desired["host"], {})
    refuse_platform(plan, node)
    engines.refuse(plan, node, engines.DOCKER)
    OURS.refuse_record(plan, node, installed(node, PACKAGES))
    if desired["state"] == "present":
        _refuse_engine(plan, node, desired)
    if plan.refusals:
        return plan.result()
    if desired["state"] == "present":
        leftovers.plan_leftovers(plan, node, desired)
        _plan_engine(plan, node, desired)
        cri_dockerd.plan_cri_dockerd(plan, node, desired)
        _plan_users(plan, node, desired["users"])
        OURS.notice_sources(plan, node, desired)
    else:
        _plan_absent(plan, node)
    OURS.plan_repair(plan, node, leftovers.PACKAGES, *cri_dockerd.TRANSACTIONS)
    starts = [START] if plan.data.get("daemon_reload") else []
    packages = (OURS.install, OURS.remove, cri_dockerd.INSTALL)
    notice_reload(plan, node, *packages, *proxy.reloading(plan), *starts)
    return plan.result()


def _plan_users(plan: Plan[Data], node: Node, users: Iterable[str]) -> None:
    missing = [user for user in users if user not in node["engines"]["docker"]["group"]]
    plan.data["users"] = missing
    plan.step(USERS, f"not in the group: {', '.join(missing)}" if missing else None)


def refuse_config(plan: Plan[NoData], node: Node, new_keys: Iterable[str] = ()) -> None:
    """Refuse a configuration that is unreadable, or that Docker rejects with the new keys."""
    config = node["engines"]["docker"]["config"]
    if config["error"]:
        plan.refuse("DOCKER_CONFIG_INVALID", error=config["error"])
        return
    for clash in docker_keys.clashes(node["engines"]["docker"], new_keys):
        plan.refuse("DOCKER_FLAG_CLASH", path=config["path"], **clash._asdict())


def refuse_silent(plan: Plan[NoData], engine: Docker) -> None:
    """Refuse a Docker that runs but does not answer: its containers are unknown."""
    if engine["running"] and not engine["answers"]:
        plan.refuse("DOCKER_SILENT")


def _refuse_engine(plan: Plan[NoData], node: Node, desired: Desired) -> None:
    """Refuse a Docker that this role can neither use nor install beside."""
    engine = node["engines"]["docker"]
    engines.refuse_distribution(plan, node)
    if engine["snap"]:
        plan.refuse("SNAP_DOCKER", found=", ".join(engine["snap"]))
    if engine["rootless"] and not engine["running"]:
        plan.refuse("ROOTLESS_DOCKER", found=", ".join(engine["rootless"]))
    refuse_config(plan, node, desired["daemon_options"])
    options.refuse_options(plan, node, desired)
    proxy.refuse_proxy(plan, node, desired)
    _refuse_packages(plan, desired)
    if engine["record_error"]:
        plan.refuse("DOCKER_RECORD_INVALID", error=engine["record_error"])


def _refuse_packages(plan: Plan[NoData], desired: Desired) -> None:
    wrong = [name for name in desired["packages"] if not _PLUGIN.fullmatch(name)]
    if wrong:
        plan.refuse(
            "VARIABLE_INVALID",
            name="docker_ce_packages",
            found=", ".join(wrong),
            expected="names of packages that begin with docker-, without versions",
            role=ROLE,
        )


def _plan_engine(plan: Plan[Data], node: Node, desired: Desired) -> None:
    engine = node["engines"]["docker"]
    others = installed(node, DISTRIBUTION) if PACKAGE not in node["packages"] else []
    plan.data |= {
        "record": {"path": docker.RECORD},
        "containers": [container["id"] for container in engine["interrupted"]],
        "daemon_reload": engine["needs_reload"],
    }
    if not engine["installed"]:
        version: str | None = desired["version"]
        options.plan_options(plan, node, desired, version=version, is_new=True)
        proxy.plan_proxy(plan, node, desired, is_new=True)
        held = _plan_packages(plan, node, desired, "Docker is not installed")
        OURS.plan_hold(plan, node, held)
    elif others and desired["replace_distribution"]:
        _plan_exchange(plan, node, desired, others)
        options.plan_options(plan, node, desired, version=desired["version"], is_new=False)
        # The other Docker starts with it.
        proxy.plan_proxy(plan, node, desired, is_new=True)
    else:
        ours = [name for name in OURS.of_role(node) if name in (*PACKAGES, *desired["packages"])]
        notice_unheld(plan, node, _of_others(node, ours))
        if _version(node) != desired["version"]:
            plan.notice(
                "ENGINE_KEPT",
                found=_found(node, others),
                variable="docker_ce_version",
                expected=desired["version"],
            )
        wanted = desired["containerd_version"]
        OURS.notice_kept(plan, node, "containerd.io", "docker_ce_containerd_version", wanted)
        if not engine["running"]:
            plan.step(START, "Docker is not running")
        elif not engine["enabled"]:
            plan.step(START, "Docker does not start at boot")
        _plan_interrupted(plan, node, engine["interrupted"])
        _plan_plugins(plan, node, desired)
        options.plan_options(plan, node, desired, version=engine["version"], is_new=False)
        proxy.plan_proxy(plan, node, desired, is_new=False)
        new = {name: "" for name in desired["packages"] if name not in node["packages"]}
        if ours or new:
            versions = {name: node["packages"][name]["version"] for name in ours}
            reason = "the new packages are not held yet" if new else None
            OURS.plan_hold(plan, node, {**versions, **new}, reason)
            plan.step(DISARM, engine["purge_script"] and f"docker.io left {engine['purge_script']}")


def _plan_plugins(plan: Plan[Data], node: Node, desired: Desired) -> None:
    """Plan the additional packages that a node with an engine lacks."""
    missing = {name: "" for name in desired["packages"] if name not in node["packages"]}
    if missing:
        OURS.plan_install(plan, node, missing, f"not installed: {', '.join(missing)}")
        plan.data |= {"may_remove": [], "change_held": False, "repository": {}}


def _of_others(node: Node, ours: Iterable[str]) -> list[str]:
    """Return the packages of an engine that this collection did not install."""
    installed_by_us = {*ours, *Record.of(node, "containerd").ours}
    return [name for name in (*PACKAGES, *DISTRIBUTION) if name not in installed_by_us]


def _plan_exchange(plan: Plan[Data], node: Node, desired: Desired, others: list[str]) -> None:
    """Plan the replacement of the distribution's Docker by docker-ce, which keeps its data.

    One transaction of the package manager does it, so the node is never without a Docker.
    """
    engine = node["engines"]["docker"]
    refuse_silent(plan, engine)
    for setting, file in docker_keys.lost_settings(engine):
        plan.refuse("DOCKER_SETTING_LOST", setting=setting, file=file)
    own = [container for container in engine["containers"] if not container["of_pod"]]
    ephemeral = [container["name"] for container in own if container["ephemeral"]]
    if ephemeral and not engine["live_restore"]:
        plan.refuse("CONTAINERS_EPHEMERAL", containers=", ".join(ephemeral))
    plan.data["record"]["merge"] = {container["id"]: container["name"] for container in own}
    names = ", ".join(container["name"] for container in own if not container["noted"])
    plan.step(RECORD, f"{names} must run again after the replacement" if names else None)
    reason = f"docker-ce replaces {', '.join(others)} {engine['version']}"
    ours = _plan_packages(plan, node, desired, reason)
    plan.data["containers"] += [container["id"] for container in own]
    _plan_interrupted(plan, node, [*engine["interrupted"], *own])
    OURS.plan_hold(plan, node, ours)
    if "docker.io" in others:
        plan.step(DISARM, f"the removal of docker.io leaves {docker.PURGE_SCRIPT}")


def _plan_packages(plan: Plan[Data], node: Node, desired: Desired, reason: str) -> dict[str, str]:
    """Plan the packages of the engine. Return the packages to hold."""
    system = systems.supported(node)
    OURS.plan_repository(plan, node, desired, system.docker)
    packages = {
        **docker_packages.docker(system, desired["version"]),
        **docker_packages.containerd(system, desired["containerd_version"]),
        **dict.fromkeys(desired["packages"], ""),
    }
    conflicts = installed(node, CONFLICTS)
    changed = [name for name in packages if install_reason(node, {name: packages[name]})]
    recorded = [*OURS.of_role(node), *Record.of(node, "containerd").ours]
    if held := held_by_admin(node, (*changed, *conflicts), recorded):
        plan.refuse("PACKAGES_HELD", packages=", ".join(held), names=" ".join(held))
    plan.data["change_held"] = bool(recorded)
    also = f"; this removes the conflicting {', '.join(conflicts)}" if conflicts else ""
    ours = OURS.plan_install(plan, node, packages, reason + also)
    plan.data["may_remove"] += [name for name in conflicts if name not in plan.data["may_remove"]]
    plan.step(START, reason)
    return ours


def _plan_interrupted(plan: Plan[Data], node: Node, containers: Iterable[Container]) -> None:
    names = ", ".join(container["name"] for container in containers)
    if names:
        plan.step(CONTAINERS, f"{names} ran before Docker was replaced")
    elif docker.RECORD in edited(node, ROLE):
        plan.step(CONTAINERS, f"{docker.RECORD} is left from an earlier run")


def _plan_absent(plan: Plan[Data], node: Node) -> None:
    """Plan the removal of what this role installed, if nothing runs in it.

    The record is removed near the end. It shows that the role installed Docker, so an interrupted
    run can continue.
    """
    engine = node["engines"]["docker"]
    packages = OURS.added(node)
    # Nobody's containers need the additional packages.
    needed = [name for name in packages if name in (*PACKAGES, cri_dockerd.PACKAGE)]
    running = [container["name"] for container in engine["containers"]]
    if needed:
        refuse_silent(plan, engine)
    elif engine["installed"]:
        plan.notice("ENGINE_OF_ADMIN", engine="Docker")
    if needed and node["kubelet"]["running"] is not False:
        plan.refuse("DOCKER_IN_USE", evidence="a running kubelet")
    elif needed and running:
        plan.refuse("DOCKER_IN_USE", evidence=f"running containers ({', '.join(running)})")
    # The script of Docker's rpm stops docker.service alone. Those of its .deb stop both.
    if PACKAGE in packages and systems.is_redhat(node) and engine["socket_active"]:
        plan.step(STOP_SOCKET, "the package does not stop it when it is removed")
    OURS.plan_remove(plan, node, packages)
    options.plan_no_options(plan, node)
    proxy.plan_no_proxy(plan, node)
    OURS.plan_cleanup(plan, node)


def _version(node: Node) -> str | None:
    """Return the upstream version of Docker's own package."""
    package = node["packages"].get(PACKAGE)
    return upstream_version(package["version"]) if package else None


def _found(node: Node, others: list[str]) -> str:
    names = others or installed(node, [PACKAGE]) or ["dockerd"]
    return f"{names[0]} {node['engines']['docker']['version']}"
