# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does the node have a Docker Engine that the kubelet can use?

Installs Docker's own packages if there is no engine. An existing engine stays the admin's: the plan
only starts it. It replaces a distribution's engine only if replace_distribution is true. This role
does not edit daemon.json.

Source: https://docs.docker.com/engine/install/
"""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.metal.gpu.plugins.module_utils.read import docker
from ansible_collections.metal.gpu.plugins.module_utils.read.version import upstream_version
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import (
    packages as docker_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import (
    settings as docker_keys,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.observed import (
    Container,
    Docker,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    refuse_platform,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import record as package_record
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import (
    REPAIR,
    arguments,
    hold_arguments,
    hold_reason,
    installed,
    notice_unheld,
    plan_no_repository,
    plan_repair,
    plan_repository,
    refuse_dependants,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import Repository
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    NoData,
    Plan,
    PlanResult,
    Step,
    edited,
)

V1_CONTAINERS = Step("v1_containers", "Remove the containers and volumes of nvidia-docker v1")
LEFTOVERS = Step("leftovers", "Remove nvidia-docker")
LEFTOVER_REPOSITORIES = Step("leftover_repositories", "Remove the repositories of nvidia-docker")
PYTHON_DEBIAN = Step("python_debian", "Install python3-debian for the Docker repository")
REPOSITORY = Step("repository", "Add the Docker repository")
RECORD = Step("record", "Record the running containers")
INSTALL = Step("install", "Install Docker")
START = Step("start", "Start Docker")
CONTAINERS = Step("containers", "Start the recorded containers")
HOLD = Step("hold", "Hold Docker")
DISARM = Step("disarm", "Remove the purge script of docker.io")
CRI_DOCKERD = Step("cri_dockerd", "Install cri-dockerd")
HOLD_CRI_DOCKERD = Step("hold_cri_dockerd", "Hold cri-dockerd")
START_CRI_DOCKERD = Step("start_cri_dockerd", "Start cri-dockerd")
USERS = Step("users", "Add users to the group docker")

REMOVE = Step("remove", "Remove Docker")
RELEASE = Step("release", "Release the hold on Docker")
FORGET = Step("forget", "Delete the record of Docker packages")
REMOVE_REPOSITORY = Step("remove_repository", "Remove the Docker repository")

STEPS = (
    *(REPAIR, V1_CONTAINERS, LEFTOVERS, LEFTOVER_REPOSITORIES, RECORD, PYTHON_DEBIAN, REPOSITORY),
    *(INSTALL, START, CONTAINERS, HOLD, DISARM),
    *(CRI_DOCKERD, HOLD_CRI_DOCKERD, START_CRI_DOCKERD, USERS),
    *(REMOVE, RELEASE, FORGET, REMOVE_REPOSITORY),
)

_NEED_PACKAGE_MANAGER = (
    *(LEFTOVERS, PYTHON_DEBIAN, INSTALL, HOLD),
    *(CRI_DOCKERD, HOLD_CRI_DOCKERD, REMOVE, RELEASE),
)

ROLE = "docker_ce"
REPOSITORY_NAME = "metal-gpu-docker"
PACKAGE = "docker-ce"
PACKAGES = (PACKAGE, "docker-ce-cli", "containerd.io")
CRI_DOCKERD_PACKAGE = "cri-dockerd"

# Engines of distributions, and packages that conflict with docker-ce or containerd.io. The package
# manager removes them while it installs those two. Their data and settings stay.
DISTRIBUTION = ("docker.io", "docker-engine", "moby-engine", "docker")
CONFLICTS = (*DISTRIBUTION, "docker-cli", "podman-docker", "containerd", "runc")

# The packages of nvidia-docker v1 and v2, as NVIDIA's instructions installed them. The package with
# the program that daemon.json names is removed later, after the container toolkit is installed.
LEFTOVER_PACKAGES = ("nvidia-docker", "nvidia-docker2")
LEFTOVER_LISTS = ("nvidia-docker", "nvidia-container-runtime", "libnvidia-container")


def plan(node: Node, desired: Desired) -> PlanResult:
    """Plan Docker."""
    plan = Plan[Data](desired["host"], {})
    refuse_platform(plan, node)
    engines.refuse(plan, node, engines.DOCKER)
    package_record.refuse_record(plan, node, ROLE)
    if desired["state"] == "absent":
        if plan.refusals:
            return plan.result()
        _plan_absent(plan, node)
        plan_repair(plan, node, *_NEED_PACKAGE_MANAGER)
        return plan.result()
    engines.refuse_distribution(plan, node)
    _refuse_other_kinds(plan, node["engines"]["docker"])
    refuse_config(plan, node)
    if node["engines"]["docker"]["record_error"]:
        plan.refuse("DOCKER_RECORD_INVALID", error=node["engines"]["docker"]["record_error"])
    if plan.refusals:
        return plan.result()
    _plan_leftovers(plan, node, desired)
    _plan_engine(plan, node, desired)
    _plan_cri_dockerd(plan, node, desired)
    missing = [user for user in desired["users"] if user not in node["engines"]["docker"]["group"]]
    plan.data["users"] = missing
    plan.step(USERS, f"not in the group: {', '.join(missing)}" if missing else None)
    plan_repair(plan, node, *_NEED_PACKAGE_MANAGER)
    return plan.result()


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


def _refuse_other_kinds(plan: Plan[Data], engine: Docker) -> None:
    if engine["snap"]:
        plan.refuse("SNAP_DOCKER", found=", ".join(engine["snap"]))
    if engine["rootless"] and not engine["running"]:
        plan.refuse("ROOTLESS_DOCKER", found=", ".join(engine["rootless"]))


def _plan_leftovers(plan: Plan[Data], node: Node, desired: Desired) -> None:
    """Plan the removal of nvidia-docker. Its daemon.json stays; the next role adopts it."""
    found = node["engines"]["docker"]["v1"]
    containers = [container["name"] for container in found["containers"]]
    volumes = list(found["volumes"])
    if (containers or volumes) and not desired["v1_removal_ok"]:
        plan.refuse(
            "NVIDIA_DOCKER_V1",
            containers=", ".join(containers) or "none",
            volumes=", ".join(volumes) or "none",
        )
    packages = installed(node, LEFTOVER_PACKAGES)
    if systems.is_redhat(node):
        # The removal of the rpm would delete daemon.json with the admin's edits.
        packages = [name for name in packages if name != "nvidia-docker2"]
    lists = [name for name in LEFTOVER_LISTS if name in node["repositories"]]
    # The repository of the toolkit alone may be in use, and is harmless.
    if not packages and lists == ["libnvidia-container"]:
        lists = []
    plan.data |= {
        "v1_containers": [container["id"] for container in found["containers"]],
        "v1_volumes": volumes,
        "leftover_packages": packages,
        "leftover_lists": [node["repositories"][name]["path"] for name in lists],
    }
    gone = [*containers, *volumes]
    plan.step(
        V1_CONTAINERS,
        f"they stop working without nvidia-docker v1: {', '.join(gone)}" if gone else None,
    )
    plan.step(LEFTOVERS, f"installed: {', '.join(packages)}" if packages else None)
    plan.step(LEFTOVER_REPOSITORIES, f"configured: {', '.join(lists)}" if lists else None)


def _plan_engine(plan: Plan[Data], node: Node, desired: Desired) -> None:
    engine = node["engines"]["docker"]
    others = installed(node, DISTRIBUTION) if PACKAGE not in node["packages"] else []
    plan.data |= {
        "record": {"path": docker.RECORD},
        "containers": [container["id"] for container in engine["interrupted"]],
        "daemon_reload": engine["needs_reload"],
    }
    if not engine["installed"]:
        ours = _plan_packages(plan, node, desired, "Docker is not installed")
        plan.step(HOLD, hold_reason(node, ours))
    elif others and desired["replace_distribution"]:
        _plan_exchange(plan, node, desired, others)
    else:
        ours = [name for name in package_record.of_role(node, ROLE) if name in PACKAGES]
        notice_unheld(plan, node, _of_others(node, ours))
        if _version(node) != desired["version"]:
            plan.notice("ENGINE_KEPT", found=_found(node, others), expected=desired["version"])
        if not engine["running"]:
            plan.step(START, "Docker is not running")
        elif not engine["enabled"]:
            plan.step(START, "Docker does not start at boot")
        _plan_interrupted(plan, node, engine["interrupted"])
        if ours:
            versions = {name: node["packages"][name]["version"] for name in ours}
            plan.data["hold"] = hold_arguments(node, versions)
            plan.step(HOLD, hold_reason(node, ours))
            plan.step(DISARM, engine["purge_script"] and f"docker.io left {engine['purge_script']}")


def _of_others(node: Node, ours: Iterable[str]) -> list[str]:
    """Return the packages of an engine that this collection did not install."""
    installed_by_us = {*ours, *package_record.of_role(node, "containerd")}
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
    plan.step(HOLD, hold_reason(node, ours))
    if "docker.io" in others:
        plan.step(DISARM, f"the removal of docker.io leaves {docker.PURGE_SCRIPT}")


def _plan_packages(plan: Plan[Data], node: Node, desired: Desired, reason: str) -> list[str]:
    """Plan the packages of the engine. Return the packages to hold."""
    system = systems.supported(node)
    source = Repository.desired(REPOSITORY_NAME, desired, system.docker)
    plan_repository(plan, node, source, desired["now"], prepare=PYTHON_DEBIAN, add=REPOSITORY)
    packages = {
        **docker_packages.docker(system, desired["version"]),
        **docker_packages.containerd(system, desired["containerd_version"]),
    }
    plan.data["packages"] = arguments(node, packages)
    ours = package_record.record(plan, node, ROLE, packages)
    plan.data["hold"] = hold_arguments(node, ours)
    conflicts = installed(node, CONFLICTS)
    also = f"; this removes the conflicting {', '.join(conflicts)}" if conflicts else ""
    plan.step(INSTALL, reason + also)
    plan.step(START, reason)
    return list(ours)


def _plan_interrupted(plan: Plan[Data], node: Node, containers: Iterable[Container]) -> None:
    names = ", ".join(container["name"] for container in containers)
    if names:
        plan.step(CONTAINERS, f"{names} ran before Docker was replaced")
    elif docker.RECORD in edited(node, "docker_ce"):
        plan.step(CONTAINERS, f"{docker.RECORD} is left from an earlier run")


def _plan_cri_dockerd(plan: Plan[Data], node: Node, desired: Desired) -> None:
    """Plan cri-dockerd if the kubelet is configured for it."""
    found = node["engines"]["docker"]["cri_dockerd"]
    endpoint = node["kubelet"]["endpoint"]
    if not endpoint:
        return
    if not found["installed"]:
        system = systems.supported(node)
        url = desired["cri_dockerd_url"] or docker_packages.cri_dockerd_url(system)
        plan.data["cri_dockerd_url"] = url
        if url is None:
            plan.refuse("CRI_DOCKERD_UNPACKAGED", endpoint=endpoint, found=system.name)
        elif not desired["cri_dockerd_checksum"]:
            plan.refuse("CRI_DOCKERD_MISSING", endpoint=endpoint, url=url)
        package_record.record(plan, node, ROLE, {CRI_DOCKERD_PACKAGE: ""})
        plan.step(CRI_DOCKERD, f"the kubelet is configured for {endpoint}")
    if not found["installed"] or CRI_DOCKERD_PACKAGE in package_record.of_role(node, ROLE):
        plan.step(HOLD_CRI_DOCKERD, hold_reason(node, [CRI_DOCKERD_PACKAGE]))
    if not found["running"] or not found["enabled"]:
        plan.step(START_CRI_DOCKERD, f"the kubelet is configured for {endpoint}")


def _plan_absent(plan: Plan[Data], node: Node) -> None:
    """Plan the removal of what this role installed, if nothing runs in it.

    The record is removed near the end. It shows that the role installed Docker, so an interrupted
    run can continue.
    """
    engine = node["engines"]["docker"]
    packages = package_record.added(node, ROLE)
    plan.data["packages"] = packages
    running = [container["name"] for container in engine["containers"]]
    if packages:
        refuse_silent(plan, engine)
    elif engine["installed"]:
        plan.notice("ENGINE_OF_ADMIN", engine="Docker")
    if packages and node["kubelet"]["running"] is not False:
        plan.refuse("DOCKER_IN_USE", evidence="a running kubelet")
    elif packages and running:
        plan.refuse("DOCKER_IN_USE", evidence=f"running containers ({', '.join(running)})")
    refuse_dependants(plan, node, packages)
    plan.step(REMOVE, f"installed: {', '.join(packages)}" if packages else None)
    package_record.plan_forget(plan, node, ROLE, release=RELEASE, forget=FORGET)
    plan_no_repository(plan, node, REPOSITORY_NAME, remove=REMOVE_REPOSITORY)


def _version(node: Node) -> str | None:
    """Return the upstream version of Docker's own package."""
    package = node["packages"].get(PACKAGE)
    return upstream_version(package["version"]) if package else None


def _found(node: Node, others: list[str]) -> str:
    names = others or installed(node, [PACKAGE]) or ["dockerd"]
    return f"{names[0]} {node['engines']['docker']['version']}"
