# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Is there a containerd that a kubelet can use?

Installs one where there is none. A containerd that is there belongs to its owner: it is started,
and the package's own configuration, which turns the kubelet's interface off, is put right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils import (
    docker_packages,
    engines,
    package_record,
    systems,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    Plan,
    actor,
    edited,
    refuse_lost_history,
    refuse_uneditable,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_packages import (
    REPAIR,
    arguments,
    hold_arguments,
    hold_gap,
    notice_unheld,
    plan_no_repository,
    plan_repair,
    plan_repository,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_preflight import refuse_platform
from ansible_collections.metal.gpu.plugins.plugin_utils.repositories import Repository

PYTHON_DEBIAN = "Install python3-debian for the Docker repository"
REPOSITORY = "Add the Docker repository"
INSTALL = "Install containerd"
HOLD = "Hold containerd"
CRI = "Enable the CRI plugin of containerd"
RESTART = "Restart containerd"
START = "Start containerd"

GIVE_BACK = "Restore the configuration of containerd"
RESTART_BACK = "Restart containerd with its former configuration"
REMOVE = "Remove containerd"
RELEASE = "Release the hold on containerd"
FORGET = "Delete the record of the containerd package"
REMOVE_REPOSITORY = "Remove the Docker repository"

STEPS = (
    *(REPAIR, PYTHON_DEBIAN, REPOSITORY, INSTALL, HOLD, CRI, RESTART, START),
    *(GIVE_BACK, RESTART_BACK, REMOVE, RELEASE, FORGET, REMOVE_REPOSITORY),
)

REPOSITORY_NAME = "metal-gpu-docker"
PACKAGE = "containerd.io"
DISTRIBUTION = "containerd"
CONFIG = "/etc/containerd/config.toml"
ROLE = "containerd"
DOCKER_ROLE = "docker_ce"  # brings the same package

RESTART_REASON = "it reads its configuration only at its start; containers run on"


def plan(node: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, Any]:
    """Plan containerd.

    Desired: host, state, version, and of the repository url, suite, key and fingerprint.
    """
    plan = Plan(desired["host"])
    refuse_platform(plan, node)
    engines.refuse(plan, node, engines.CONTAINERD)
    if desired["state"] == "present":
        engines.refuse_distribution(plan, node)
    refuse_config(plan, node)
    package_record.refuse_record(plan, node, ROLE)
    if plan.refusals:
        return plan.result()
    if desired["state"] == "absent":
        _plan_absent(plan, node)
    elif node["engines"]["containerd"]["installed"]:
        _plan_installed(plan, node)
    else:
        _plan_missing(plan, node, desired)
    plan_repair(plan, node, PYTHON_DEBIAN, INSTALL, HOLD, REMOVE, RELEASE)
    refuse_lost_history(plan, node, ROLE)
    return plan.result()


def refuse_config(plan: Plan, node: Mapping[str, Any]) -> None:
    """Refuse a configuration that nobody can read."""
    error = node["engines"]["containerd"]["config"]["error"]
    if error:
        plan.refuse("CONTAINERD_CONFIG_INVALID", error=error)


def _plan_missing(plan: Plan, node: Mapping[str, Any], desired: Mapping[str, Any]) -> None:
    system = systems.known(node)
    source = Repository.desired(REPOSITORY_NAME, desired, system.docker)
    plan_repository(plan, node, source, desired["now"], prepare=PYTHON_DEBIAN, add=REPOSITORY)
    wanted = docker_packages.containerd(system, desired["version"])
    plan.data["packages"] = arguments(node, wanted)
    ours = package_record.record(plan, node, ROLE, wanted)
    plan.data["hold"] = hold_arguments(node, ours)
    plan.step(INSTALL, "there is no containerd")
    plan.step(HOLD, hold_gap(node, ours))
    _plan_cri(plan, CONFIG, "Docker's package turns the CRI plugin off")


def _plan_installed(plan: Plan, node: Mapping[str, Any]) -> None:
    engine = node["engines"]["containerd"]
    config = engine["config"]
    plan.data["hold"] = [PACKAGE]
    if package_record.of_role(node, ROLE):
        plan.step(HOLD, hold_gap(node, [PACKAGE]))
    elif PACKAGE not in package_record.of_role(node, DOCKER_ROLE):
        notice_unheld(plan, node, (PACKAGE, DISTRIBUTION))
    if engine["cri_enabled"] is False:
        # Docker's package ships a file without a version; one that has a version was written by
        # somebody who wanted the plugin off.
        if config["version"] is None:
            reason = f"{config['path']} turns the CRI plugin off, as Docker packages it"
            refuse_uneditable(plan, config)
            _plan_cri(plan, config["path"], reason)
        else:
            plan.refuse("CRI_DISABLED", path=config["path"])
    elif not engine["running"]:
        plan.step(START, "it is not running")
    else:
        plan.data["change"] = unread_change(node)
        plan.step(RESTART, unread_reason(engine))


def unread_reason(engine: Mapping[str, Any]) -> str | None:
    """Return why a containerd that is set up well has to be restarted all the same.

    A run that was cut off between a change and the restart leaves this behind.
    """
    unread = ", ".join(engine["changed_since_start"])
    return f"{unread} changed after it had started; containers run on" if unread else None


def unread_change(node: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the path and the actor of the change of ours that containerd has not read yet.

    It may be taken back where containerd does not start with it; what somebody has changed since
    may not.
    """
    unread = node["engines"]["containerd"]["changed_since_start"]
    return next(
        (
            {"path": edit["path"], "actor": edit["actor"]}
            for edit in node["ours"]["edits"]
            if edit["path"] in unread and edit["untouched"]
        ),
        None,
    )


def _plan_cri(plan: Plan, path: str, reason: str) -> None:
    """Plan the edit of the file without a version that Docker's package ships."""
    plan.data["change"] = {"path": path, "actor": actor(ROLE)}
    plan.data["config"] = {
        "path": path,
        "discard": [{"path": ["disabled_plugins"], "items": ["cri"]}],
        # systemd owns the control groups of the node; two owners take pods from each other.
        "merge": {
            "plugins": {
                "cri": {
                    "containerd": {
                        "runtimes": {
                            "runc": {
                                "runtime_type": "io.containerd.runc.v2",
                                "options": {"SystemdCgroup": True},
                            }
                        }
                    }
                }
            }
        },
    }
    plan.step(CRI, reason)
    plan.step(RESTART, RESTART_REASON)


def _plan_absent(plan: Plan, node: Mapping[str, Any]) -> None:
    """Without what this role has done, no kubelet and no Docker could go on: they go first."""
    edits, packages = edited(node, ROLE), package_record.brought(node, ROLE)
    plan.data |= {"edits": edits, "packages": packages}
    if (edits or packages) and (
        node["kubelet"]["running"] is not False or node["engines"]["docker"]["installed"]
    ):
        plan.refuse("CONTAINERD_IN_USE")
    if edits:
        plan.step(GIVE_BACK, f"this role has changed {', '.join(edits)}")
        if not packages:
            plan.step(RESTART_BACK, "it reads its configuration only at its start")
    if packages:
        plan.step(REMOVE, f"{PACKAGE} is installed")
    elif node["engines"]["containerd"]["installed"]:
        plan.notice("ENGINE_OF_ADMIN", engine="containerd")
    package_record.plan_forget(plan, node, ROLE, release=RELEASE, forget=FORGET)
    plan_no_repository(plan, node, REPOSITORY_NAME, remove=REMOVE_REPOSITORY)
