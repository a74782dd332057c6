# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Is there a Docker Engine that the kubelet can use?

Installs Docker's own packages where there is no engine. An engine that is there belongs to its
owner: it is started where it stands, and one of the distribution gives way only where that is
asked for. daemon.json is nobody's business here.

Source: https://docs.docker.com/engine/install/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils import docker
from ansible_collections.metal.gpu.plugins.module_utils.version import upstream_version
from ansible_collections.metal.gpu.plugins.plugin_utils import (
    docker_keys,
    docker_packages,
    engines,
    package_record,
    systems,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan, edited
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_packages import (
    REPAIR,
    arguments,
    hold_arguments,
    hold_gap,
    installed,
    notice_unheld,
    plan_no_repository,
    plan_repair,
    plan_repository,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_preflight import refuse_platform
from ansible_collections.metal.gpu.plugins.plugin_utils.repositories import Repository

V1_CONTAINERS = "Remove the containers and volumes of nvidia-docker v1"
LEFTOVERS = "Remove nvidia-docker"
LEFTOVER_REPOSITORIES = "Remove the repositories of nvidia-docker"
PYTHON_DEBIAN = "Install python3-debian for the Docker repository"
REPOSITORY = "Add the Docker repository"
RECORD = "Record the running containers"
INSTALL = "Install Docker"
START = "Start Docker"
CONTAINERS = "Start the recorded containers"
HOLD = "Hold Docker"
DISARM = "Remove the purge script of docker.io"
CRI_DOCKERD = "Install cri-dockerd"
HOLD_CRI_DOCKERD = "Hold cri-dockerd"
START_CRI_DOCKERD = "Start cri-dockerd"
USERS = "Add users to the group docker"

REMOVE = "Remove Docker"
RELEASE = "Release the hold on Docker"
FORGET = "Delete the record of Docker packages"
REMOVE_REPOSITORY = "Remove the Docker repository"

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

# Engines of distributions, and what cannot be beside docker-ce or containerd.io. The package
# manager takes all of them away, without their data and settings, while it installs those.
DISTRIBUTION = ("docker.io", "docker-engine", "moby-engine", "docker")
CONFLICTS = (*DISTRIBUTION, "docker-cli", "podman-docker", "containerd", "runc")

# Of nvidia-docker, v1 and v2, as NVIDIA's instructions have installed them. The package with the
# program that daemon.json names goes later: when the container toolkit has brought another one.
LEFTOVER_PACKAGES = ("nvidia-docker", "nvidia-docker2")
LEFTOVER_LISTS = ("nvidia-docker", "nvidia-container-runtime", "libnvidia-container")


def plan(node: Mapping[str, Any], wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Plan Docker.

    Wishes: host, state, version, containerd_version, replace_distribution, v1_removal_ok, users,
    cri_dockerd_url, cri_dockerd_checksum, and of the repository url, suite, key and fingerprint.
    """
    made = Plan(wishes["host"])
    refuse_platform(made, node)
    engines.refuse(made, node, engines.DOCKER)
    package_record.refuse_record(made, node, ROLE)
    if wishes["state"] == "absent":
        _plan_absent(made, node)
        plan_repair(made, node, *_NEED_PACKAGE_MANAGER)
        return made.result()
    engines.refuse_distribution(made, node)
    _refuse_other_kinds(made, node["engines"]["docker"])
    refuse_config(made, node)
    if node["engines"]["docker"]["record_error"]:
        made.refuse("DOCKER_RECORD_INVALID", error=node["engines"]["docker"]["record_error"])
    if made.refusals:
        return made.result()
    _plan_leftovers(made, node, wishes)
    _plan_engine(made, node, wishes)
    _plan_cri_dockerd(made, node, wishes)
    missing = [user for user in wishes["users"] if user not in node["engines"]["docker"]["group"]]
    made.data["users"] = missing
    made.step(USERS, f"{', '.join(missing)} cannot" if missing else None)
    plan_repair(made, node, *_NEED_PACKAGE_MANAGER)
    return made.result()


def refuse_config(made: Plan, node: Mapping[str, Any], new_keys: Iterable[str] = ()) -> None:
    """Refuse a configuration that nobody can read, or that Docker will not take with new keys."""
    config = node["engines"]["docker"]["config"]
    if config["error"]:
        made.refuse("DOCKER_CONFIG_INVALID", error=config["error"])
        return
    for clash in docker_keys.clashes(node["engines"]["docker"], new_keys):
        made.refuse("DOCKER_FLAG_CLASH", path=config["path"], **clash._asdict())


def refuse_silent(made: Plan, engine: Mapping[str, Any]) -> None:
    """Refuse a Docker that runs and does not answer: what runs in it is anybody's guess."""
    if engine["running"] and not engine["answers"]:
        made.refuse("DOCKER_SILENT")


def _refuse_other_kinds(made: Plan, engine: Mapping[str, Any]) -> None:
    if engine["snap"]:
        made.refuse("SNAP_DOCKER", found=", ".join(engine["snap"]))
    if engine["rootless"] and not engine["running"]:
        made.refuse("ROOTLESS_DOCKER", found=", ".join(engine["rootless"]))


def _plan_leftovers(made: Plan, node: Mapping[str, Any], wishes: Mapping[str, Any]) -> None:
    """Plan the end of nvidia-docker. Its daemon.json stays, and is adopted by the next role."""
    found = node["engines"]["docker"]["v1"]
    containers = [container["name"] for container in found["containers"]]
    volumes = list(found["volumes"])
    if (containers or volumes) and not wishes["v1_removal_ok"]:
        made.refuse(
            "NVIDIA_DOCKER_V1",
            containers=", ".join(containers) or "none",
            volumes=", ".join(volumes) or "none",
        )
    packages = installed(node, LEFTOVER_PACKAGES)
    if systems.is_redhat(node):
        # The rpm would take daemon.json along, whoever has edited it.
        packages = [name for name in packages if name != "nvidia-docker2"]
    lists = [name for name in LEFTOVER_LISTS if name in node["repositories"]]
    # A list of the toolkit alone may be in use, and nothing is wrong with it.
    if not packages and lists == ["libnvidia-container"]:
        lists = []
    made.data |= {
        "v1_containers": [container["id"] for container in found["containers"]],
        "v1_volumes": volumes,
        "leftover_packages": packages,
        "leftover_lists": [node["repositories"][name]["path"] for name in lists],
    }
    gone = [*containers, *volumes]
    made.step(V1_CONTAINERS, f"{', '.join(gone)} cannot be without it" if gone else None)
    made.step(LEFTOVERS, f"{', '.join(packages)} installed" if packages else None)
    made.step(LEFTOVER_REPOSITORIES, f"{', '.join(lists)} are there" if lists else None)


def _plan_engine(made: Plan, node: Mapping[str, Any], wishes: Mapping[str, Any]) -> None:
    engine = node["engines"]["docker"]
    others = installed(node, DISTRIBUTION) if PACKAGE not in node["packages"] else []
    made.data |= {
        "record": {"path": docker.RECORD},
        "containers": [container["id"] for container in engine["interrupted"]],
        "daemon_reload": engine["needs_reload"],
    }
    if not engine["installed"]:
        ours = _plan_packages(made, node, wishes, "there is no Docker")
        made.step(HOLD, hold_gap(node, ours))
    elif others and wishes["replace_distribution"]:
        _plan_exchange(made, node, wishes, others)
    else:
        ours = [name for name in package_record.of_role(node, ROLE) if name in PACKAGES]
        notice_unheld(made, node, _of_others(node, ours))
        if _version(node) != wishes["version"]:
            made.notice("ENGINE_KEPT", found=_found(node, others), expected=wishes["version"])
        if not engine["running"]:
            made.step(START, "it is not running")
        elif not engine["enabled"]:
            made.step(START, "it does not start at boot")
        _plan_interrupted(made, node, engine["interrupted"])
        if ours:
            versions = {name: node["packages"][name]["version"] for name in ours}
            made.data["hold"] = hold_arguments(node, versions)
            made.step(HOLD, hold_gap(node, ours))
            made.step(DISARM, engine["purge_script"] and f"{engine['purge_script']} is left of it")


def _of_others(node: Mapping[str, Any], ours: Iterable[str]) -> list[str]:
    """Return the packages of an engine that this collection has not installed."""
    known = {*ours, *package_record.of_role(node, "containerd")}
    return [name for name in (*PACKAGES, *DISTRIBUTION) if name not in known]


def _plan_exchange(
    made: Plan, node: Mapping[str, Any], wishes: Mapping[str, Any], others: list[str]
) -> None:
    """Plan docker-ce in the place of the distribution's Docker, whose data it takes over.

    One transaction of the package manager does it, so that there is always one of them.
    """
    engine = node["engines"]["docker"]
    refuse_silent(made, engine)
    for setting, file in docker_keys.lost_settings(engine):
        made.refuse("DOCKER_SETTING_LOST", setting=setting, file=file)
    own = [container for container in engine["containers"] if not container["of_pod"]]
    ephemeral = [container["name"] for container in own if container["ephemeral"]]
    if ephemeral and not engine["live_restore"]:
        made.refuse("CONTAINERS_EPHEMERAL", containers=", ".join(ephemeral))
    made.data["record"]["merge"] = {container["id"]: container["name"] for container in own}
    names = ", ".join(container["name"] for container in own if not container["noted"])
    made.step(RECORD, f"{names} shall run afterwards, too" if names else None)
    reason = f"{', '.join(others)} {engine['version']} gives way"
    ours = _plan_packages(made, node, wishes, reason)
    made.data["containers"] += [container["id"] for container in own]
    _plan_interrupted(made, node, [*engine["interrupted"], *own])
    made.step(HOLD, hold_gap(node, ours))
    if "docker.io" in others:
        made.step(DISARM, f"docker.io leaves {docker.PURGE_SCRIPT}")


def _plan_packages(
    made: Plan, node: Mapping[str, Any], wishes: Mapping[str, Any], reason: str
) -> list[str]:
    """Plan the packages of the engine, and return those to hold."""
    system = systems.known(node)
    source = Repository.wished(REPOSITORY_NAME, wishes, system.docker)
    plan_repository(made, node, source, wishes["now"], prepare=PYTHON_DEBIAN, add=REPOSITORY)
    wanted = {
        **docker_packages.docker(system, wishes["version"]),
        **docker_packages.containerd(system, wishes["containerd_version"]),
    }
    made.data["packages"] = arguments(node, wanted)
    ours = package_record.record(made, node, ROLE, wanted)
    made.data["hold"] = hold_arguments(node, ours)
    conflicts = installed(node, CONFLICTS)
    also = f"; {', '.join(conflicts)} cannot stay beside it" if conflicts else ""
    made.step(INSTALL, reason + also)
    made.step(START, reason)
    return list(ours)


def _plan_interrupted(
    made: Plan, node: Mapping[str, Any], containers: Iterable[Mapping[str, Any]]
) -> None:
    names = ", ".join(container["name"] for container in containers)
    if names:
        made.step(CONTAINERS, f"{names} ran before Docker was replaced")
    elif docker.RECORD in edited(node, "docker_ce"):
        made.step(CONTAINERS, "a note about them is left")


def _plan_cri_dockerd(made: Plan, node: Mapping[str, Any], wishes: Mapping[str, Any]) -> None:
    """Plan what the kubelet needs to speak with Docker, where it is told to."""
    found = node["engines"]["docker"]["cri_dockerd"]
    endpoint = node["kubelet"]["endpoint"]
    if not endpoint:
        return
    if not found["installed"]:
        system = systems.known(node)
        url = wishes["cri_dockerd_url"] or docker_packages.cri_dockerd_url(system)
        made.data["cri_dockerd_url"] = url
        if url is None:
            made.refuse("CRI_DOCKERD_UNPACKAGED", endpoint=endpoint, found=system.name)
        elif not wishes["cri_dockerd_checksum"]:
            made.refuse("CRI_DOCKERD_MISSING", endpoint=endpoint, url=url)
        package_record.record(made, node, ROLE, {CRI_DOCKERD_PACKAGE: ""})
        made.step(CRI_DOCKERD, f"the kubelet talks to {endpoint}")
    if not found["installed"] or CRI_DOCKERD_PACKAGE in package_record.of_role(node, ROLE):
        made.step(HOLD_CRI_DOCKERD, hold_gap(node, [CRI_DOCKERD_PACKAGE]))
    if not found["running"] or not found["enabled"]:
        made.step(START_CRI_DOCKERD, f"the kubelet talks to {endpoint}")


def _plan_absent(made: Plan, node: Mapping[str, Any]) -> None:
    """Take away what this role has brought, if nothing runs in it.

    The record goes near the end: it tells that Docker is ours, so a run that was cut short is taken
    up again.
    """
    engine = node["engines"]["docker"]
    packages = package_record.brought(node, ROLE)
    made.data["packages"] = packages
    running = [container["name"] for container in engine["containers"]]
    if packages:
        refuse_silent(made, engine)
    elif engine["installed"]:
        made.notice("ENGINE_OF_ADMIN", engine="Docker")
    if packages and node["kubelet"]["running"]:
        made.refuse("DOCKER_IN_USE", evidence="a kubelet that runs pods in it")
    elif packages and running:
        made.refuse("DOCKER_IN_USE", evidence=f"containers that run in it, {', '.join(running)}")
    made.step(REMOVE, f"installed: {', '.join(packages)}" if packages else None)
    package_record.plan_forget(made, node, ROLE, release=RELEASE, forget=FORGET)
    plan_no_repository(made, node, REPOSITORY_NAME, remove=REMOVE_REPOSITORY)


def _version(node: Mapping[str, Any]) -> str | None:
    """Return the version of Docker's own package, without what packaging adds to it."""
    package = node["packages"].get(PACKAGE)
    return upstream_version(package["version"]) if package else None


def _found(node: Mapping[str, Any], others: list[str]) -> str:
    names = others or installed(node, [PACKAGE]) or ["dockerd"]
    return f"{names[0]} {node['engines']['docker']['version']}"
