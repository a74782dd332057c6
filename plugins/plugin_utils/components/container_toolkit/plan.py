# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does this node need so that its engine can pass GPUs to containers?

Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/
"""

from __future__ import annotations

import re

from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.read import docker, nvidia_driver
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi import name_gpu
from ansible_collections.metal.gpu.plugins.module_utils.read.version import (
    is_newer,
    upstream_version,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import (
    plan as plan_containerd,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import (
    settings as containerd_keys,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd.observed import (
    Containerd,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd.plan import (
    RESTART,
    RESTART_REASON,
    unread_reason,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import (
    plan as plan_docker_ce,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import (
    settings as docker_keys,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.plan import works
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    known_version,
    refuse_platform,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import record as package_record
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import (
    REPAIR,
    arguments,
    hold_arguments,
    hold_reason,
    install_reason,
    installed,
    notice_unheld,
    plan_no_repository,
    plan_repair,
    plan_repository,
    refuse_dependants,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import Repository
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    Change,
    File,
    Plan,
    PlanResult,
    Step,
    actor,
    changes,
    edited,
    refuse_lost_history,
    refuse_uneditable,
)

PYTHON_DEBIAN = Step("python_debian", "Install python3-debian for the toolkit repository")
REPOSITORY = Step("repository", "Add the repository of the container toolkit")
INSTALL = Step("install", "Install the container toolkit")
HOLD = Step("hold", "Hold the container toolkit")
FORMER = Step("former", "Remove the package nvidia-container-runtime")
RULE = Step("rule", "Create links in /dev/char at boot")
LINK = Step("link", "Create links in /dev/char now")
REGISTER = Step("register", "Register the NVIDIA runtime")
RELOAD = Step("reload", "Reload Docker")
RESTART_DOCKER = Step("restart_docker", "Restart Docker")
DROP_IN = Step("drop_in", "Extend the condition of the CDI service")
CDI = Step("cdi", "Generate the CDI specification")

UNREGISTER = Step("unregister", "Remove the NVIDIA runtime from containerd")
DISUSE = Step("disuse", "Stop Docker from using the NVIDIA runtime")
UNREGISTER_DOCKER = Step("unregister_docker", "Remove the NVIDIA runtime from daemon.json")
REMOVE_DROP_IN = Step("remove_drop_in", "Restore the condition of the CDI service")
REMOVE_RULE = Step("remove_rule", "Remove the rule for links in /dev/char")
REMOVE = Step("remove", "Remove the container toolkit")
REMOVE_FILES = Step("remove_files", "Remove the files of the container toolkit")
RELEASE = Step("release", "Release the hold on the container toolkit")
FORGET = Step("forget", "Delete the record of the toolkit packages")
REMOVE_REPOSITORY = Step("remove_repository", "Remove the repository of the container toolkit")

STEPS = (
    *(REPAIR, PYTHON_DEBIAN, REPOSITORY, INSTALL, HOLD, FORMER, RULE, LINK),
    *(REGISTER, RESTART, RELOAD, RESTART_DOCKER, DROP_IN, CDI),
    *(UNREGISTER, DISUSE, UNREGISTER_DOCKER, REMOVE_DROP_IN, REMOVE_RULE, REMOVE, REMOVE_FILES),
    *(RELEASE, FORGET, REMOVE_REPOSITORY),
)

ROLE = "nvidia_container_runtime"
_RELOAD_REASON = "Docker applies its runtimes without a restart; containers keep running"
# The CDI specifications that the toolkit's service writes, with their kind. The device plugin
# leaves others behind, named after a kind of its vendor.
_SPECIFICATIONS = dict.fromkeys(
    ("/run/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"), "nvidia.com/gpu"
)
_PLUGIN_VENDOR = "k8s.device-plugin.nvidia.com/"
_RUN = ("/run/cdi", "/var/run/cdi")
_DEFAULT = ("default-runtime",)
_DOCKERD = "dockerd"
_GPU_FILE = re.compile(r"/dev/nvidia\d+")

# What the role writes. The command fails until nvidia_uvm is loaded. That happens after the driver
# is loaded, and with Debian's own driver not at boot.
RULE_FILE: File = {
    "path": own_files.CHAR_DEV_RULE,
    "block": 'ACTION=="add", DEVPATH=="/bus/pci/drivers/nvidia|/module/nvidia_uvm", '
    'RUN+="/usr/bin/nvidia-ctk system create-dev-char-symlinks --create-all"\n',
}

# nvidia-cdi-refresh.service runs only if modules.dep has one of two names. Otherwise systemd skips
# it and reports success.
# Source: deployments/systemd/nvidia-cdi-refresh.service of the toolkit 1.20.1.
_ACCEPTED = re.compile(r"/(nvidia|nvidia-current)[.]ko")
CDI_DROP_IN: File = {
    "path": own_files.CDI_DROP_IN,
    "block": r"""[Service]
# The unit's own condition misses some of Debian's names of the kernel module.
ExecCondition=
ExecCondition=/bin/sh -c '[ -e /proc/driver/nvidia/version ] || grep -qE \
    "/nvidia(-current|-tesla(-[0-9]+)?)?(-open)?[.]ko" /lib/modules/%v/modules.dep'
""",
}
# Specifications here survive a reboot; the service writes below /var/run.
_STATIC_CDI = "/etc/cdi/"

REPOSITORY_NAME = "metal-gpu-container-toolkit"
PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
_CONFIG_PACKAGE = "nvidia-container-toolkit-base"
# A toolkit that stays must have a command and a service that the steps above use.
# Source: https://github.com/NVIDIA/nvidia-docker/issues/1671; the toolkit's release notes.
_LINKS_SINCE = "1.14.0"  # with --load-kernel-modules
_WRITES_CDI_SINCE = "1.18.0"
# Programs of each package, and the first version that has them.
# Source: NVIDIA's documentation of the toolkit's packages; nvidia-cdi-hook was seen from 1.18 on.
_PROGRAMS = {
    "nvidia-container-toolkit-base": {
        "nvidia-container-runtime": "0",
        "nvidia-ctk": "0",
        "nvidia-cdi-hook": "1.18.0",
    },
    "nvidia-container-toolkit": {"nvidia-container-runtime-hook": "0"},
}
_REINSTALL = {
    systems.DEBIAN: "apt-get install --reinstall",
    systems.REDHAT: "dnf reinstall",
}
# Part of nvidia-docker2. The toolkit has the same program and is installed first.
FORMER_PACKAGE = "nvidia-container-runtime"


def plan(node: Node, desired: Desired) -> PlanResult:
    """Plan the container runtime."""
    plan = Plan[Data](desired["host"], {"rule": RULE_FILE, "cdi_drop_in": CDI_DROP_IN})
    refuse_platform(plan, node)
    package_record.refuse_record(plan, node, ROLE)
    if desired["state"] == "absent":
        if plan.refusals:
            return plan.result()
        _plan_absent(plan, node)
    else:
        engines.refuse_distribution(plan, node)
        engines.refuse(plan, node, desired["engine"])
        if plan.refusals:
            return plan.result()
        _plan_toolkit(plan, node, desired)
        _refuse_unusable(plan, node)
        if engines.choose(node, desired["engine"]) == engines.DOCKER:
            _plan_docker(plan, node, desired)
        else:
            _plan_containerd(plan, node, desired)
        if not _has_driver(node, desired):
            failure = node["nvml"]["failure"]
            plan.notice("DRIVER_NOT_YET", error=failure and failure["message"])
        elif desired["cdi"]:
            _plan_cdi(plan, node)
    plan_repair(plan, node, PYTHON_DEBIAN, INSTALL, HOLD, FORMER, REMOVE, RELEASE)
    refuse_lost_history(plan, node, ROLE)
    return plan.result()


def _plan_toolkit(plan: Plan[Data], node: Node, desired: Desired) -> None:
    packages = dict.fromkeys(PACKAGES, f"{desired['version']}-1")
    found = node["toolkit"]["version"]
    ours = package_record.of_role(node, ROLE)
    others = [name for name in installed(node, packages) if name not in ours]
    held = [
        name
        for name in others
        if node["packages"][name]["held"] and install_reason(node, {name: packages[name]})
    ]
    if found is not None and is_newer(found, desired["version"]):
        plan.notice("TOOLKIT_KEPT", found=found, expected=desired["version"])
        notice_unheld(plan, node, others)
    elif held:
        _keep_held(plan, node, desired, held)
    else:
        reason = install_reason(node, packages)
        if reason:
            upstream = systems.supported(node).toolkit
            source = Repository.desired(REPOSITORY_NAME, desired, upstream)
            plan_repository(
                plan, node, source, desired["now"], prepare=PYTHON_DEBIAN, add=REPOSITORY
            )
            hold = package_record.record(plan, node, ROLE, packages)
        else:
            hold = {name: packages[name] for name in ours}
        notice_unheld(plan, node, [name for name in others if name not in hold])
        plan.data |= {
            "packages": arguments(node, packages),
            "change_held": bool(ours),
            "created_config": _created_config(node),
            "hold": hold_arguments(node, hold),
        }
        plan.step(INSTALL, reason)
        unheld = "the new version is not held yet" if reason else None
        plan.step(HOLD, hold_reason(node, hold) or unheld)
    if FORMER_PACKAGE in node["packages"]:
        plan.step(FORMER, f"the container toolkit replaces {FORMER_PACKAGE}")
    has_rule = bool(node["toolkit"]["char_dev_rules"])
    plan.step(RULE, None if has_rule else "no udev rule calls create-dev-char-symlinks")
    if has_rule:
        plan.step(LINK, _unlinked_reason(node))
    elif _has_driver(node, desired):
        plan.step(LINK, "udev runs the rule only at the next load of the driver")


def _created_config(node: Node) -> str | None:
    """Return the configuration file if the package creates it, or if it is unchanged since."""
    is_new = node["toolkit"]["config"] is None
    return nvidia_driver.TOOLKIT_CONFIG if is_new or _is_config_of_package(node) else None


def _is_config_of_package(node: Node) -> bool:
    """Tell whether the configuration file is as the package of this role created it."""
    record, observed = node["ours"]["packages"].get(ROLE), node["toolkit"]["config_sha256"]
    entry = record["packages"].get(_CONFIG_PACKAGE) if record else None
    return entry is not None and observed is not None and entry.get("config_sha256") == observed


def _has_driver(node: Node, desired: Desired) -> bool:
    """Tell whether a driver works when the steps of this plan are carried out."""
    return works(node) or desired["driver_is_planned"]


def _refuse_unusable(plan: Plan[Data], node: Node) -> None:
    """Refuse a toolkit whose packages are installed and stay, but whose programs are missing."""
    if plan.has_step(INSTALL):
        return
    found: dict[str, list[str]] = {}
    for package, programs in _PROGRAMS.items():
        observed = node["packages"].get(package)
        version = observed["version"] if observed else "0"
        for name, since in programs.items():
            file = node["toolkit"]["programs"][name]
            if not file["executable"] and not is_newer(since, upstream_version(version)):
                state = "is not executable" if file["exists"] else "is missing"
                found.setdefault(package, []).append(f"{file['path']} {state}")
    if found:
        again = _REINSTALL[node["os"]["family"]]
        plan.refuse(
            "RUNTIME_UNUSABLE",
            evidence=", ".join(text for texts in found.values() for text in texts),
            packages=" and ".join(found),
            command=" ".join((again, *found)),
        )


def _keep_held(plan: Plan[Data], node: Node, desired: Desired, held: list[str]) -> None:
    """Keep a toolkit that the admin holds, if it supports what the other steps need."""
    found = node["toolkit"]["version"]
    needed = _WRITES_CDI_SINCE if desired["cdi"] and _cdi_reason(node) else _LINKS_SINCE
    evidence = {"found": found or "none", "packages": ", ".join(held)}
    if found is None or is_newer(needed, found):
        plan.refuse("TOOLKIT_TOO_OLD", expected=needed, **evidence)
    else:
        plan.notice("TOOLKIT_HELD", expected=desired["version"], **evidence)


def _unlinked_reason(node: Node) -> str | None:
    files = [file for file in node["device_files"] if _GPU_FILE.fullmatch(file["path"])]
    unlinked = [file["path"] for file in files if not file["linked"]]
    return f"/dev/char has no link to {', '.join(unlinked)}" if unlinked else None


def _plan_containerd(plan: Plan[Data], node: Node, desired: Desired) -> None:
    engine = node["engines"]["containerd"]
    plan_containerd.refuse_config(plan, node)
    if not engine["installed"]:
        # The containerd role runs before this one. What it installs is not observed yet.
        plan.data["config"] = None
        plan.step(REGISTER, "containerd is not installed yet")
        plan.step(RESTART, RESTART_REASON)
        return
    version = known_version(plan, engines.CONTAINERD, engine)
    if version is None:
        return
    if desired["cdi"] and not containerd_keys.reads_cdi(version):
        plan.refuse("CDI_UNSUPPORTED", found=version, expected=containerd_keys.CDI_SINCE)
    ours = changes(node, ROLE, ".toml")
    former = {key: before for key, before in ours.items() if key[-1] == "default_runtime_name"}
    # A default runtime that this role set gets its former value back.
    default = containerd_keys.RUNTIME if desired["default"] else _text(*former.values())
    config = containerd_keys.edit(engine, version, default=default, cdi=desired["cdi"])
    gone = [list(key) for key, before in former.items() if before is None]
    config["remove"] = [] if desired["default"] else gone
    plan.data["config"] = config
    reason = _containerd_reason(engine, desired, is_default_ours=bool(former))
    shadows = [] if containerd_keys.merges(version) else engine["config"]["imported_cri"]
    if reason and shadows:
        plan.refuse(
            "CONTAINERD_IMPORT_REPLACES",
            files=", ".join(shadows),
            path=config["path"],
            found=engine["version"],
        )
    if reason and config["path"] == engine["config"]["path"]:
        refuse_uneditable(plan, engine["config"]["path"], engine["config"]["obstacle"])
    ours_now: Change = {"path": config["path"], "actor": actor(ROLE)}
    plan.data["change"] = ours_now if reason else plan_containerd.unread_change(node)
    plan.step(REGISTER, reason)
    plan.step(RESTART, RESTART_REASON if reason else unread_reason(engine))


def _text(*values: object) -> str | None:
    """Return the first of the former values, if it is a text."""
    value = next(iter(values), None)
    return value if isinstance(value, str) else None


def _containerd_reason(
    engine: Containerd, desired: Desired, *, is_default_ours: bool
) -> str | None:
    found = engine["runtimes"].get(containerd_keys.RUNTIME)
    if found is None:
        return "containerd has no runtime nvidia"
    reasons = []
    if found["binary"] != containerd_keys.RUNTIME_BINARY:
        reasons.append(f"its runtime nvidia runs {found['binary'] or 'runc'}")
    runc = engine["runtimes"].get("runc")
    if found["systemd_cgroup"] != (runc is not None and runc["systemd_cgroup"]):
        reasons.append("its runtimes runc and nvidia differ in SystemdCgroup")
    is_default = engine["default_runtime"] == containerd_keys.RUNTIME
    if is_default != bool(desired["default"]) and (desired["default"] or is_default_ours):
        reasons.append(f"its default runtime is {engine['default_runtime']}")
    if desired["cdi"] and not engine["cdi_enabled"]:
        reasons.append("CDI is off")
    return ", ".join(reasons) or None


def _plan_docker(plan: Plan[Data], node: Node, desired: Desired) -> None:
    """Plan daemon.json, where the runtime becomes the default one unless told otherwise.

    cri-dockerd has no RuntimeClass support, so only the default runtime gives a pod a GPU.
    """
    engine = node["engines"]["docker"]
    is_toolkit_new = plan.has_step(INSTALL)
    if not engine["installed"]:
        # The same holds for the role docker_ce.
        plan_docker_ce.refuse_config(plan, node)
        plan.data["config"] = None
        plan.step(REGISTER, "Docker is not installed yet")
        if is_toolkit_new:
            plan.step(RESTART_DOCKER, "Docker starts before the container toolkit is installed")
        else:
            plan.step(RELOAD, _RELOAD_REASON)
        return
    plan_docker_ce.refuse_silent(plan, engine)
    version = known_version(plan, _DOCKERD, engine)
    if version is None:
        return
    default: str | None = docker_keys.RUNTIME
    if desired["default"] is False:
        # A reload ignores removed keys, so the file must name the former default.
        former = changes(node, ROLE, ".json")
        restored = _text(former.get(_DEFAULT)) or docker.DEFAULT_RUNTIME
        default = restored if _DEFAULT in former else None
    config = docker_keys.edit(engine, version, default=default, cdi=desired["cdi"])
    plan_docker_ce.refuse_config(plan, node, config["merge"])
    reason = docker_keys.change_reason(engine, config["merge"], default=default)
    if reason and config["merge"]:
        refuse_uneditable(plan, engine["config"]["path"], engine["config"]["obstacle"])
    plan.data |= {
        "config": config,
        # Whether Docker still has to apply something, which it can reject.
        "has_changed": reason is not None,
        "validates": docker_keys.validates(version),
        "expected": {
            "default_runtime": default or engine["default_runtime"],
            "runtimes": [docker_keys.RUNTIME],
        },
    }
    # A run that stopped after this step leaves a correct file and an engine that has not read it.
    plan.step(REGISTER, reason if config["merge"] else None)
    pending = docker_keys.pending(
        engine, version, cdi=desired["cdi"], is_toolkit_new=is_toolkit_new
    )
    if pending and (desired["engine_is_new"] or desired["restart_ok"]):
        why = (
            "this run installed Docker"
            if desired["engine_is_new"]
            else "nvidia_container_runtime_restart_ok is true"
        )
        plan.step(RESTART_DOCKER, f"Docker may need a restart for {pending}; {why}")
        return
    plan.step(RELOAD, _RELOAD_REASON if reason else None)
    if pending:
        plan.notice("DOCKER_RESTART_DUE", found=engine["version"], unknown=pending)


def _cdi_reason(node: Node) -> str | None:
    """Return why the CDI specification must be generated."""
    devices = node["cdi"]["devices"]
    if "nvidia.com/gpu=all" not in devices:
        unread = (node["cdi"]["errors"].get(path) for path in _SPECIFICATIONS)
        return next(filter(None, unread), "no CDI specification has nvidia.com/gpu=all")
    # The toolkit's configuration decides whether devices are named by index, by UUID, or both. A
    # GPU with MIG is listed by its parts, such as 0:1. A lost GPU is not listed.
    listed = {name.partition(":")[0] for name in devices}
    missing = [
        name_gpu(gpu)
        for gpu in node["nvml"]["devices"]
        if gpu["error"] is None
        and not {f"nvidia.com/gpu={gpu['index']}", f"nvidia.com/gpu={gpu['uuid']}"} & listed
    ]
    return f"the CDI specification lacks {', '.join(missing)}" if missing else None


def _plan_cdi(plan: Plan[Data], node: Node) -> None:
    reason = _cdi_reason(node)
    refused = _condition_reason(node, reason)
    plan.step(DROP_IN, refused)
    plan.step(CDI, reason or ("the service runs only with the new condition" if refused else None))
    for path, error in node["cdi"]["errors"].items():
        if path not in _SPECIFICATIONS:
            plan.notice("CDI_FILE_INVALID", error=error)


def _condition_reason(node: Node, reason: str | None) -> str | None:
    """Return why the service that writes the CDI specification at boot skips this node."""
    if CDI_DROP_IN["path"] in node["ours"]["files"]:
        return None
    if reason is None and any(path.startswith(_STATIC_CDI) for path in node["cdi"]["spec_files"]):
        return None
    files = node["driver"]["module_files"]
    if files and not any(_ACCEPTED.search(f"/{file}") for file in files):
        return f"it accepts nvidia.ko or nvidia-current.ko, but the module is {', '.join(files)}"
    if node["toolkit"]["cdi_skipped"] and node["driver"]["module_version"]:
        return "the service finds no kernel module, but one is loaded"
    return None


def _plan_absent(plan: Plan[Data], node: Node) -> None:
    """Plan the removal of what this role did, whichever engine the node uses now.

    The record is removed near the end. It shows that the role installed the toolkit, so an
    interrupted run can continue.
    """
    edits = edited(node, ROLE)
    plan.data |= {
        "containerd_edits": [path for path in edits if path.endswith(".toml")],
        "docker_edits": [path for path in edits if path.endswith(".json")],
    }
    _unplan_containerd(plan, node)
    _unplan_docker(plan, node)
    if CDI_DROP_IN["path"] in node["ours"]["files"]:
        plan.step(REMOVE_DROP_IN, "this role created the drop-in")
    if RULE_FILE["path"] in node["ours"]["files"]:
        plan.step(REMOVE_RULE, "this role created the rule")
    _unplan_toolkit(plan, node)
    package_record.plan_forget(plan, node, ROLE, release=RELEASE, forget=FORGET)
    plan_no_repository(plan, node, REPOSITORY_NAME, remove=REMOVE_REPOSITORY)


def _unplan_containerd(plan: Plan[Data], node: Node) -> None:
    engine, edits = node["engines"]["containerd"], plan.data["containerd_edits"]
    if edits:
        plan_containerd.refuse_config(plan, node)
        if engine["config"]["path"] in edits:
            refuse_uneditable(plan, engine["config"]["path"], engine["config"]["obstacle"])
        plan.step(UNREGISTER, f"this role changed {', '.join(edits)}")
        plan.step(RESTART, RESTART_REASON if engine["running"] else None)
    else:
        plan.step(RESTART, unread_reason(engine))


def _unplan_docker(plan: Plan[Data], node: Node) -> None:
    engine, edits = node["engines"]["docker"], plan.data["docker_edits"]
    if not edits:
        return
    plan_docker_ce.refuse_config(plan, node)
    refuse_uneditable(plan, engine["config"]["path"], engine["config"]["obstacle"])
    plan_docker_ce.refuse_silent(plan, engine)
    former = changes(node, ROLE, ".json")
    bound = engine["made_with"].get(docker_keys.RUNTIME)
    if bound and former.get(("runtimes", docker_keys.RUNTIME, "path"), "kept") is None:
        plan.notice("CONTAINERS_OF_RUNTIME", containers=", ".join(bound))
    version = known_version(plan, _DOCKERD, engine) if engine["running"] else None
    if version is not None:
        way_back = docker_keys.way_back(engine, former)
        plan.data |= {
            "way_back": way_back,
            "validates": docker_keys.validates(version),
            "expected": {
                "default_runtime": _text(way_back["merge"].get("default-runtime"))
                or engine["default_runtime"],
                "runtimes": [],
            },
        }
        plan.step(DISUSE, "a reload ignores removed keys")
        plan.step(RELOAD, _RELOAD_REASON)
    plan.step(UNREGISTER_DOCKER, f"this role changed {', '.join(edits)}")


def _unplan_toolkit(plan: Plan[Data], node: Node) -> None:
    packages = package_record.added(node, ROLE)
    toolkit = node["toolkit"]
    config = toolkit["config"]
    keeps_config = config is not None and not _is_config_of_package(node)
    # A purge removes the configuration file of an older package, even if the admin changed it.
    plan.data |= {"packages": packages, "purge": not keeps_config}
    refuse_dependants(plan, node, packages)
    plan.step(REMOVE, f"installed: {', '.join(packages)}" if packages else None)
    if installed(node, [name for name in PACKAGES if name not in packages]):
        plan.notice("TOOLKIT_OF_ADMIN", found=toolkit["version"])
        return
    if ROLE not in node["ours"]["packages"]:
        return
    kinds = node["cdi"]["kinds"]
    specifications = [path for path, kind in kinds.items() if _is_generated(path, kind)]
    if keeps_config:
        plan.notice("TOOLKIT_CONFIG_KEPT", path=config)
    files = [path for path in (None if keeps_config else config, *specifications) if path]
    plan.data["files"] = files
    plan.step(
        REMOVE_FILES, f"the packages leave them behind: {', '.join(files)}" if files else None
    )


def _is_generated(path: str, kind: str | None) -> bool:
    """Tell whether the toolkit or the device plugin wrote a CDI specification."""
    if kind is None:
        return False
    if _SPECIFICATIONS.get(path) == kind:
        return True
    folder, _slash, name = path.rpartition("/")
    named_after_kind = name.rpartition(".")[0] == kind.replace("/", "-")
    return folder in _RUN and kind.startswith(_PLUGIN_VENDOR) and named_after_kind
