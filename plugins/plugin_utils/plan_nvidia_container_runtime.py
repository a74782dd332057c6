# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does this node need so that its engine can give GPUs to containers?

Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils import docker
from ansible_collections.metal.gpu.plugins.module_utils.nvidia_smi import name_gpu
from ansible_collections.metal.gpu.plugins.module_utils.version import release, upstream_version
from ansible_collections.metal.gpu.plugins.plugin_utils import (
    containerd_keys,
    docker_keys,
    engines,
    plan_containerd,
    plan_docker_ce,
    systems,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    Plan,
    actor,
    changes,
    edited,
    refuse_lost_history,
    refuse_uneditable,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_containerd import (
    RESTART,
    RESTART_REASON,
    unread_reason,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_packages import (
    REPAIR,
    arguments,
    hold_arguments,
    hold_gap,
    installed,
    packages_gap,
    plan_no_repository,
    plan_repair,
    plan_repository,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_preflight import (
    refuse_platform,
    refuse_unversioned,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.repositories import Repository

PYTHON_DEBIAN = "Install python3-debian for the container toolkit's repository"
REPOSITORY = "Add the container toolkit's repository"
INSTALL = "Install the container toolkit"
HOLD = "Hold the container toolkit"
FORMER = "Remove the former container runtime"
RULE = "Link the character devices of the GPUs"
LINK = "Link the devices that are there already"
REGISTER = "Register the NVIDIA runtime"
RELOAD = "Reload Docker"
RESTART_DOCKER = "Restart Docker"
CDI = "Write the CDI specification"

UNREGISTER = "Take the NVIDIA runtime out of containerd"
DISUSE = "Have Docker do without the NVIDIA runtime"
UNREGISTER_DOCKER = "Take the NVIDIA runtime out of daemon.json"
REMOVE_RULE = "Stop linking the character devices of the GPUs"
REMOVE = "Remove the container toolkit"
REMOVE_FILES = "Remove what the container toolkit has written"
REMOVE_REPOSITORY = "Remove the container toolkit's repository"

STEPS = (
    *(REPAIR, PYTHON_DEBIAN, REPOSITORY, INSTALL, HOLD, FORMER, RULE, LINK),
    *(REGISTER, RESTART, RELOAD, RESTART_DOCKER, CDI),
    *(UNREGISTER, DISUSE, UNREGISTER_DOCKER, REMOVE_RULE, REMOVE, REMOVE_FILES, REMOVE_REPOSITORY),
)

ROLE = "nvidia_container_runtime"
_RELOAD_REASON = "it takes its runtimes over without a restart; containers run on"
# What the toolkit's service for CDI writes, and what the device plugin leaves behind.
_SPECIFICATION = re.compile(r"(/var)?/run/cdi/(nvidia\.yaml|k8s\.device-plugin\.nvidia\.com-.*)")
_DEFAULT = ("default-runtime",)
_DOCKERD = "dockerd"
_GPU_FILE = re.compile(r"/dev/nvidia\d+")

# What the role writes.
RULE_FILE = {
    "path": "/etc/udev/rules.d/71-metal-gpu-char-dev.rules",
    "block": 'ACTION=="add", DEVPATH=="/bus/pci/drivers/nvidia", '
    'RUN+="/usr/bin/nvidia-ctk system create-dev-char-symlinks --create-all"\n',
}

REPOSITORY_NAME = "metal-gpu-container-toolkit"
PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
# What the steps above need of a toolkit that stays as it is: a command, and a service.
# Source: https://github.com/NVIDIA/nvidia-docker/issues/1671; the toolkit's release notes.
_LINKS_SINCE = "1.12.0"
_WRITES_CDI_SINCE = "1.18.0"
# Of nvidia-docker2. The toolkit has the same program, and comes first.
FORMER_PACKAGE = "nvidia-container-runtime"


def plan(node: Mapping[str, Any], wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Plan the container runtime.

    Wishes: host, state, engine, engine_is_new (whether this very run has brought it to a node
    without one), restart_ok, version, default (whether it becomes the default runtime; None: as
    the engine needs it), cdi, and of the repository url, suite, key and fingerprint.
    """
    made = Plan(wishes["host"])
    made.data["rule"] = RULE_FILE
    refuse_platform(made, node)
    if wishes["state"] == "absent":
        _plan_absent(made, node)
    else:
        engines.refuse(made, node, wishes["engine"])
        if made.refusals:
            return made.result()
        _plan_toolkit(made, node, wishes)
        if engines.choose(node, wishes["engine"]) == engines.DOCKER:
            _plan_docker(made, node, wishes)
        else:
            _plan_containerd(made, node, wishes)
        if wishes["cdi"]:
            made.step(CDI, _cdi_gap(node))
    plan_repair(made, node, PYTHON_DEBIAN, INSTALL, HOLD, FORMER, REMOVE)
    refuse_lost_history(made, node, ROLE)
    return made.result()


def _plan_toolkit(made: Plan, node: Mapping[str, Any], wishes: Mapping[str, Any]) -> None:
    wanted = dict.fromkeys(PACKAGES, f"{wishes['version']}-1")
    found = node["toolkit"]["version"]
    # What we hold came from our repository.
    is_ours = REPOSITORY_NAME in node["repositories"]
    held = [
        name
        for name in installed(node, wanted)
        if node["packages"][name]["held"] and packages_gap(node, {name: wanted[name]})
    ]
    if found is not None and release(upstream_version(found)) > release(wishes["version"]):
        made.notice("TOOLKIT_KEPT", found=found, expected=wishes["version"])
    elif held and not is_ours:
        _keep_held(made, node, wishes, held)
    else:
        missing = packages_gap(node, wanted)
        if missing:
            upstream = systems.known(node).toolkit
            source = Repository.wished(REPOSITORY_NAME, wishes, upstream)
            plan_repository(made, node, source, prepare=PYTHON_DEBIAN, add=REPOSITORY)
        made.data |= {
            "packages": arguments(node, wanted),
            "change_held": is_ours,
            "hold": hold_arguments(node, wanted),
        }
        made.step(INSTALL, missing)
        # A source of somebody else's may be used; what comes from there is his to upgrade.
        if is_ours or (missing and made.data["repository"]["new"]):
            ended = "a new version is not held yet" if missing else None
            made.step(HOLD, hold_gap(node, PACKAGES) or ended)
    if FORMER_PACKAGE in node["packages"]:
        made.step(FORMER, f"the toolkit takes the place of {FORMER_PACKAGE}")
    if not node["toolkit"]["char_dev_rules"]:
        made.step(RULE, "no udev rule calls create-dev-char-symlinks")
        made.step(LINK, "the rule is heeded when the driver is loaded the next time")
    else:
        made.step(LINK, _unlinked_gap(node))


def _keep_held(
    made: Plan, node: Mapping[str, Any], wishes: Mapping[str, Any], held: list[str]
) -> None:
    """Leave a toolkit alone that somebody else holds, if it can do what the other steps need."""
    found = node["toolkit"]["version"]
    needed = _WRITES_CDI_SINCE if wishes["cdi"] and _cdi_gap(node) else _LINKS_SINCE
    evidence = {"found": found or "none", "packages": ", ".join(held)}
    if found is None or release(upstream_version(found)) < release(needed):
        made.refuse("TOOLKIT_TOO_OLD", expected=needed, **evidence)
    else:
        made.notice("TOOLKIT_HELD", expected=wishes["version"], **evidence)


def _unlinked_gap(node: Mapping[str, Any]) -> str | None:
    files = [file for file in node["device_files"] if _GPU_FILE.fullmatch(file["path"])]
    unlinked = [file["path"] for file in files if not file["linked"]]
    return f"/dev/char has no link to {', '.join(unlinked)}" if unlinked else None


def _plan_containerd(made: Plan, node: Mapping[str, Any], wishes: Mapping[str, Any]) -> None:
    engine = node["engines"]["containerd"]
    plan_containerd.refuse_config(made, node)
    if not engine["installed"]:
        # The containerd role comes before this one; what it installs is not there to be read yet.
        made.data["config"] = None
        made.step(REGISTER, "there is no containerd yet")
        made.step(RESTART, RESTART_REASON)
        return
    if refuse_unversioned(made, engines.CONTAINERD, engine):
        return
    if wishes["cdi"] and not containerd_keys.reads_cdi(engine["version"]):
        made.refuse("CDI_UNSUPPORTED", found=engine["version"], expected=containerd_keys.CDI_SINCE)
    ours = changes(node, ROLE, ".toml")
    former = {key: before for key, before in ours.items() if key[-1] == "default_runtime_name"}
    # A default that this role has made goes back to what it was.
    default = containerd_keys.RUNTIME if wishes["default"] else next(iter(former.values()), None)
    config = containerd_keys.edit(engine, default=default, cdi=wishes["cdi"])
    gone = [list(key) for key, before in former.items() if before is None]
    made.data["config"] = {**config, "remove": [] if wishes["default"] else gone}
    gap = _containerd_gap(engine, wishes, is_default_ours=bool(former))
    shadows = [] if containerd_keys.merges(engine["version"]) else engine["config"]["imported_cri"]
    if gap and shadows:
        made.refuse(
            "CONTAINERD_IMPORT_REPLACES",
            files=", ".join(shadows),
            path=config["path"],
            found=engine["version"],
        )
    if gap and config["path"] == engine["config"]["path"]:
        refuse_uneditable(made, engine["config"])
    ours_now = {"path": config["path"], "actor": actor(ROLE)}
    made.data["change"] = ours_now if gap else plan_containerd.unread_change(node)
    made.step(REGISTER, gap)
    made.step(RESTART, RESTART_REASON if gap else unread_reason(engine))


def _containerd_gap(
    engine: Mapping[str, Any], wishes: Mapping[str, Any], *, is_default_ours: bool
) -> str | None:
    found = engine["runtimes"].get(containerd_keys.RUNTIME)
    if found is None:
        return "containerd has no runtime nvidia"
    reasons = []
    if found["binary"] != containerd_keys.RUNTIME_BINARY:
        reasons.append(f"its runtime nvidia runs {found['binary'] or 'runc'}")
    runc = engine["runtimes"].get("runc") or {}
    if found["systemd_cgroup"] != bool(runc.get("systemd_cgroup")):
        reasons.append("its runtimes runc and nvidia differ in SystemdCgroup")
    is_default = engine["default_runtime"] == containerd_keys.RUNTIME
    if is_default != bool(wishes["default"]) and (wishes["default"] or is_default_ours):
        reasons.append(f"its default runtime is {engine['default_runtime']}")
    if wishes["cdi"] and not engine["cdi_enabled"]:
        reasons.append("CDI is off")
    return ", ".join(reasons) or None


def _plan_docker(made: Plan, node: Mapping[str, Any], wishes: Mapping[str, Any]) -> None:
    """Plan daemon.json, where the runtime becomes the default one unless told otherwise.

    cri-dockerd knows no runtime classes: it is the only way for a pod to get a GPU.
    """
    engine = node["engines"]["docker"]
    is_toolkit_new = any(step["name"] == INSTALL for step in made.steps)
    if not engine["installed"]:
        # The role docker_ce comes before this one, likewise.
        plan_docker_ce.refuse_config(made, node)
        made.data["config"] = None
        made.step(REGISTER, "there is no Docker yet")
        if is_toolkit_new:
            made.step(RESTART_DOCKER, "it will have started before the container toolkit came")
        else:
            made.step(RELOAD, _RELOAD_REASON)
        return
    plan_docker_ce.refuse_silent(made, engine)
    if refuse_unversioned(made, _DOCKERD, engine):
        return
    default: str | None = docker_keys.RUNTIME
    if wishes["default"] is False:
        # A reload takes no notice of a key that is gone, so the former default is written down.
        former = changes(node, ROLE, ".json")
        default = (former.get(_DEFAULT) or docker.DEFAULT_RUNTIME) if _DEFAULT in former else None
    config = docker_keys.edit(engine, default=default, cdi=wishes["cdi"])
    plan_docker_ce.refuse_config(made, node, config["merge"])
    gap = docker_keys.gap(engine, config["merge"], default=default)
    if gap and config["merge"]:
        refuse_uneditable(made, engine["config"])
    made.data |= {
        "config": {**config, "remove": []},
        # Whether there is something that Docker can refuse: what it does not do yet.
        "has_changed": gap is not None,
        "validates": docker_keys.validates(engine["version"]),
        "expected": {
            "default_runtime": default or engine["default_runtime"],
            "runtimes": [docker_keys.RUNTIME],
        },
    }
    # A run that was cut off behind it leaves a file that is right, and an engine that is not.
    made.step(REGISTER, gap if config["merge"] else None)
    unknown = docker_keys.unknown(engine, cdi=wishes["cdi"], is_toolkit_new=is_toolkit_new)
    if unknown and (wishes["engine_is_new"] or wishes["restart_ok"]):
        why = "it has just come" if wishes["engine_is_new"] else "it is permitted"
        made.step(RESTART_DOCKER, f"it may learn of {unknown} only when it starts; {why}")
        return
    made.step(RELOAD, _RELOAD_REASON if gap else None)
    if unknown:
        made.notice("DOCKER_RESTART_DUE", found=engine["version"], unknown=unknown)


def _cdi_gap(node: Mapping[str, Any]) -> str | None:
    """Return why the CDI specification has to be written again."""
    known = node["cdi"]["devices"]
    if "nvidia.com/gpu=all" not in known:
        return "there is none"
    # Devices are named by index, by UUID, or both, as the toolkit is configured; a GPU with MIG is
    # there by its parts, such as 0:1, and one that is lost is left out.
    there = {name.partition(":")[0] for name in known}
    missing = [
        name_gpu(gpu)
        for gpu in node["nvml"]["devices"]
        if gpu["error"] is None
        and not {f"nvidia.com/gpu={gpu['index']}", f"nvidia.com/gpu={gpu['uuid']}"} & there
    ]
    return f"it lacks {', '.join(missing)}" if missing else None


def _plan_absent(made: Plan, node: Mapping[str, Any]) -> None:
    """Take away what this role has done, whichever engine the node uses by now.

    The repository goes last: it tells that the toolkit is ours, so a run that was cut short is
    taken up again.
    """
    edits = edited(node, ROLE)
    made.data |= {
        "containerd_edits": [path for path in edits if path.endswith(".toml")],
        "docker_edits": [path for path in edits if path.endswith(".json")],
    }
    _unplan_containerd(made, node)
    _unplan_docker(made, node)
    if RULE_FILE["path"] in node["ours"]["files"]:
        made.step(REMOVE_RULE, "the rule is of this role")
    _unplan_toolkit(made, node)
    plan_no_repository(made, node, REPOSITORY_NAME, remove=REMOVE_REPOSITORY)


def _unplan_containerd(made: Plan, node: Mapping[str, Any]) -> None:
    engine, edits = node["engines"]["containerd"], made.data["containerd_edits"]
    if edits:
        plan_containerd.refuse_config(made, node)
        if engine["config"]["path"] in edits:
            refuse_uneditable(made, engine["config"])
        made.step(UNREGISTER, f"this role has changed {', '.join(edits)}")
        made.step(RESTART, RESTART_REASON if engine["running"] else None)
    else:
        made.step(RESTART, unread_reason(engine))


def _unplan_docker(made: Plan, node: Mapping[str, Any]) -> None:
    engine, edits = node["engines"]["docker"], made.data["docker_edits"]
    if not edits:
        return
    plan_docker_ce.refuse_config(made, node)
    refuse_uneditable(made, engine["config"])
    plan_docker_ce.refuse_silent(made, engine)
    former = changes(node, ROLE, ".json")
    bound = engine["made_with"].get(docker_keys.RUNTIME)
    if bound and former.get(("runtimes", docker_keys.RUNTIME, "path"), "kept") is None:
        made.notice("CONTAINERS_OF_RUNTIME", containers=", ".join(bound))
    if engine["running"] and not refuse_unversioned(made, _DOCKERD, engine):
        way_back = docker_keys.way_back(former)
        made.data |= {
            "way_back": {"path": engine["config"]["path"], **way_back},
            "validates": docker_keys.validates(engine["version"]),
            "expected": {
                "default_runtime": way_back["merge"].get(
                    "default-runtime", engine["default_runtime"]
                ),
                "runtimes": [],
            },
        }
        made.step(DISUSE, "of a key that is gone, it would take no notice")
        made.step(RELOAD, _RELOAD_REASON)
    made.step(UNREGISTER_DOCKER, f"this role has changed {', '.join(edits)}")


def _unplan_toolkit(made: Plan, node: Mapping[str, Any]) -> None:
    packages = installed(node, PACKAGES)
    toolkit = node["toolkit"]
    if REPOSITORY_NAME not in node["repositories"]:
        if packages:
            made.notice("TOOLKIT_OF_OWNER", found=toolkit["version"])
        return
    made.data["packages"] = packages
    made.step(REMOVE, f"{', '.join(packages)} installed" if packages else None)
    specifications = [path for path in node["cdi"]["spec_files"] if _SPECIFICATION.fullmatch(path)]
    files = [path for path in (toolkit["config"], *specifications) if path]
    made.data["files"] = files
    made.step(REMOVE_FILES, f"{', '.join(files)} survive their package" if files else None)
