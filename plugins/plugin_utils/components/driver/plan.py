# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does this node need for a working NVIDIA driver?

A working driver is kept, whatever its version. A replacement stops the node's pods, and the run may
have been started for another purpose.

Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.platform import GpuRow
from ansible_collections.metal.gpu.plugins.module_utils.read import gpu_models
from ansible_collections.metal.gpu.plugins.module_utils.read.gpu_models import branch
from ansible_collections.metal.gpu.plugins.module_utils.read.version import upstream_version
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    packages as driver_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.observed import Driver
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import (
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
    failed,
    hold_arguments,
    hold_reason,
    install_reason,
    notice_unheld,
    orphans,
    plan_no_repository,
    plan_repair,
    plan_repository,
    refuse_dependants,
    unfinished_evidence,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
    Repository,
    is_enabled,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import File, Plan, PlanResult, Step

PYTHON_DEBIAN = Step("python_debian", "Install python3-debian for the NVIDIA repository")
REPOSITORY = Step("repository", "Add the NVIDIA repository")
STREAM = Step("stream", "Enable the module stream of the driver branch")
BLACKLIST = Step("blacklist", "Block the nouveau module")
INITRAMFS = Step("initramfs", "Rebuild the initramfs")
PIN = Step("pin", "Pin the driver version")
HEADERS = Step("headers", "Install the headers of the kernel")
INSTALL = Step("install", "Install the driver")
BUILD = Step("build", "Build the kernel module")
HOLD = Step("hold", "Hold the driver")
MODULES_LOAD = Step("modules_load", "Load the NVIDIA modules at boot")
REBOOT = Step("reboot", "Reboot into the NVIDIA driver")
LOAD = Step("load", "Load the NVIDIA modules")
PERSISTENCE = Step("persistence", "Start the persistence daemon")

STOP_PERSISTENCE = Step("stop_persistence", "Stop the persistence daemon")
UNLOAD = Step("unload", "Unload the NVIDIA modules")
REMOVE = Step("remove", "Remove the driver")
RELEASE = Step("release", "Release the hold on the driver")
REMOVE_FILES = Step("remove_files", "Remove the module configuration of the driver")
FORGET = Step("forget", "Delete the record of the driver packages")
REMOVE_REPOSITORY = Step("remove_repository", "Remove the NVIDIA repository")

STEPS = (
    *(REPAIR, PYTHON_DEBIAN, REPOSITORY, STREAM, PIN, HEADERS, BLACKLIST, INITRAMFS, INSTALL),
    *(HOLD, MODULES_LOAD, BUILD, REBOOT, LOAD, PERSISTENCE),
    *(STOP_PERSISTENCE, UNLOAD, REMOVE, RELEASE, REMOVE_FILES, FORGET, REMOVE_REPOSITORY),
)

ROLE = "nvidia_driver"
REPOSITORY_NAME = "metal-gpu-nvidia-driver"
DNF_MODULE = "nvidia-driver"
MODULES = ("nvidia", "nvidia_uvm")
# Each module may be used by the modules before it. Other modules, such as nvidia_peermem, use these
# and are used by none, so they are unloaded first.
_UNLOADED_LAST = ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia")
# The files that the role writes, and the command that puts the first one into the initramfs.
BLACKLIST_FILE: File = {
    "path": own_files.NOUVEAU_BLACKLIST,
    "block": "blacklist nouveau\noptions nouveau modeset=0\n",
}
MODULES_LOAD_FILE: File = {
    "path": own_files.MODULES_LOAD,
    "block": "".join(f"{name}\n" for name in MODULES),
}
_INITRAMFS = {
    systems.DEBIAN: ["/usr/sbin/update-initramfs", "-u", "-k", "all"],
    systems.REDHAT: ["/usr/bin/dracut", "--force"],
}
# The driver answers and reports a broken GPU. Another driver would not fix it.
_BROKEN_GPU = ("gpu_lost", "gpu_error", "inforom_corrupted", "insufficient_power")


def plan(node: Node, desired: Desired) -> PlanResult:
    """Plan the driver."""
    is_missing = desired["state"] == "present" and not works(node)
    plan = Plan[Data](
        desired["host"],
        {
            "blacklist": BLACKLIST_FILE,
            "modules_load": MODULES_LOAD_FILE,
            "is_missing": is_missing,
            "initramfs": _INITRAMFS.get(node["os"]["family"]),
        },
    )
    refuse_platform(plan, node)
    package_record.refuse_record(plan, node, ROLE)
    if plan.refusals:
        return plan.result()
    if desired["state"] == "absent":
        _plan_absent(plan, node)
    elif not node["pci"]:
        plan.refuse("NO_GPU")
    elif is_missing:
        _plan_present(plan, node, desired)
    else:
        _plan_working(plan, node, desired)
    plan_repair(plan, node, PYTHON_DEBIAN, STREAM, PIN, HEADERS, INSTALL, HOLD, REMOVE, RELEASE)
    return plan.result()


def works(node: Node) -> bool:
    """Whether a driver answers, whatever its source.

    A driver that shows one GPU works, whatever it reports about the others.
    """
    nvml = node["nvml"]
    return (
        nvml["failure"] is None
        or nvml["failure"]["code"] in _BROKEN_GPU
        or any(gpu["error"] is None for gpu in nvml["devices"])
    )


def _plan_working(plan: Plan[Data], node: Node, desired: Desired) -> None:
    """Keep a working driver, and hold it if this role installed it.

    A driver of the desired version is set up to load at boot. Other versions are left alone.
    """
    found = _version(node)
    packages = driver_packages.carriers(node["driver"]["packages"])
    # A pinning package needs no hold.
    ours = [name for name in package_record.of_role(node, ROLE) if "-pinning-" not in name]
    if not packages:
        plan.notice("DRIVER_WITHOUT_PACKAGE", found=found)
    if failed(node):
        plan.notice("DRIVER_UNFINISHED", found=found, **unfinished_evidence(node))
    notice_unheld(plan, node, [name for name in packages if name not in ours])
    if found != desired["version"]:
        plan.notice("DRIVER_KEPT", found=found, expected=desired["version"])
        return
    plan.data["hold"] = hold_arguments(
        node, {name: node["packages"][name]["version"] for name in ours}
    )
    _plan_blacklist(plan, node["driver"])
    plan.step(HOLD, hold_reason(node, ours))
    plan.step(MODULES_LOAD, _boot_reason(node))
    plan.step(LOAD, _unloaded_reason(node))
    if node["driver"]["persistenced"]["installed"]:
        plan.step(PERSISTENCE, _persistence_reason(node))
    else:
        plan.notice("PERSISTENCE_MISSING", found=found)


def _plan_present(plan: Plan[Data], node: Node, desired: Desired) -> None:
    version, driver = desired["version"], node["driver"]
    system = systems.supported(node)
    flavour = _choose_flavour(plan, node, desired)
    _refuse(plan, node, desired)
    if flavour is None:
        return
    chosen = driver_packages.choose(system, version, flavour)
    if chosen is None:
        plan.refuse("DRIVER_PACKAGES_UNKNOWN", found=system.name, version=version)
        return
    packages, pinning = chosen.packages, chosen.pinning
    kernel = node["kernel"]
    headers = [] if kernel["headers"] else [f"{chosen.headers}{kernel['release']}"]
    # In one transaction, rpm may build the module before the headers are installed, and NVIDIA's
    # package ignores a failed build. dpkg unpacks all packages before it builds.
    # Source: %post in dkms-open-nvidia.spec of NVIDIA/yum-packaging-dkms-nvidia
    separate = headers if systems.is_redhat(node) else []
    plan.data |= {
        "flavour": flavour,
        "stream": chosen.stream,
        "pinning": arguments(node, pinning),
        "headers": separate,
        "packages": arguments(node, packages) + ([] if separate else headers),
    }
    package_record.record(plan, node, ROLE, pinning)
    ours = package_record.record(plan, node, ROLE, packages)
    plan.data["hold"] = hold_arguments(node, ours)
    reason = install_reason(node, packages)
    pin_reason = install_reason(node, pinning)
    headers_reason = f"{headers[0]} is not installed" if headers else None
    _refuse_installation(plan, node, desired, packages, reason or pin_reason)
    if pin_reason:
        _refuse_pin(plan, node, pinning)
    if headers and not separate:
        reason = "; ".join(filter(None, (reason, headers_reason)))
    if reason or pin_reason:
        source = Repository.desired(REPOSITORY_NAME, desired, system.driver)
        plan_repository(plan, node, source, desired["now"], prepare=PYTHON_DEBIAN, add=REPOSITORY)
    if reason and systems.is_redhat(node):
        _plan_redhat(plan, node, version, chosen.stream)
    plan.step(PIN, pin_reason)
    plan.step(HEADERS, headers_reason if separate else None)
    _plan_blacklist(plan, driver)
    plan.step(INSTALL, reason)
    plan.step(HOLD, hold_reason(node, ours))
    plan.step(MODULES_LOAD, _boot_reason(node))
    has_failed = _plan_build(plan, node, version, is_complete=not (reason or headers))
    reboot = _reboot_reason(node, desired)
    plan.step(REBOOT, reboot)
    plan.step(LOAD, None if reboot else _unloaded_reason(node))
    plan.step(PERSISTENCE, _persistence_reason(node))
    if has_failed or not (plan.steps or plan.refusals):
        _refuse_broken(plan, node, version)


def _plan_build(plan: Plan[Data], node: Node, version: str, *, is_complete: bool) -> bool:
    """Plan the build of the module. Return whether it cannot succeed without an admin."""
    dkms = node["driver"]["dkms"]
    if dkms["built"] is not False:
        return False
    sources = [one for one in dkms["sources"] if one.endswith(f"/{version}")]
    plan.data["source"] = sources[0] if sources else None
    if is_complete and (dkms["log"] or not sources):
        return True
    if sources:
        plan.step(BUILD, f"DKMS built no module for kernel {node['kernel']['release']}")
    return False


def _refuse_installation(
    plan: Plan[Data],
    node: Node,
    desired: Desired,
    packages: Mapping[str, str],
    reason: str | None,
) -> None:
    """Refuse packages that no repository has, or that would replace a driver of the admin.

    A driver that does not answer may work, and pods may use it.
    """
    if not reason:
        return
    version, system = desired["version"], systems.supported(node)
    if branch(version) < system.first_branch and not desired["repository_url"]:
        plan.refuse(
            "DRIVER_BRANCH_MISSING",
            version=version,
            found=system.name,
            branch=system.first_branch,
        )
    failure = node["nvml"]["failure"]
    is_silent = failure is not None and failure["code"] == "timeout"
    is_loaded = node["driver"]["module_version"] == version
    installed = driver_packages.carriers(node["driver"]["packages"])
    missing = [name for name in driver_packages.carriers(packages) if name not in node["packages"]]
    is_of_admin = ROLE not in node["ours"]["packages"] and installed and missing
    if (is_silent and is_loaded) or is_of_admin:
        _refuse_broken(plan, node, version)


def _refuse_broken(plan: Plan[Data], node: Node, version: str) -> None:
    if all(refusal["code"] != "DRIVER_BROKEN" for refusal in plan.refusals):
        plan.refuse("DRIVER_BROKEN", found=version, error=_error(node))


def _refuse_pin(plan: Plan[Data], node: Node, pinning: Mapping[str, str]) -> None:
    """Refuse to replace a pin of the admin: only one such package can be installed.

    The pin of a whole branch also allows versions newer than the desired one.
    Source: Conflicts and Replaces of nvidia-driver-pinning-580 in NVIDIA's repository
    """
    ours = package_record.of_role(node, ROLE)
    found = [
        name
        for name in node["driver"]["packages"]
        if "-pinning-" in name and name not in pinning and name not in ours
    ]
    if found:
        plan.refuse(
            "DRIVER_PIN_TAKEN",
            packages=", ".join(found),
            names=" ".join(found),
            expected=", ".join(pinning),
        )


def _plan_blacklist(plan: Plan[Data], driver: Driver) -> None:
    is_blocked = driver["nouveau_blacklisted"]
    plan.step(BLACKLIST, None if is_blocked else "no file in modprobe.d blacklists nouveau")
    plan.step(INITRAMFS, _ramdisk_reason(driver))


def _ramdisk_reason(driver: Driver) -> str | None:
    """Return why the initramfs must be rebuilt: it could load nouveau before the blacklist."""
    if driver["initramfs_outdated"] is None:
        return None
    if not driver["nouveau_blacklisted"]:
        return "it must contain the blacklist"
    return "the blacklist is newer than the initramfs" if driver["initramfs_outdated"] else None


def _plan_redhat(plan: Plan[Data], node: Node, version: str, stream: str | None) -> None:
    """Plan what only Red Hat's distributions need: dkms from EPEL, and the module stream."""
    if "dkms" not in node["packages"] and not any(
        is_enabled(found) for name, found in node["repositories"].items() if name.startswith("epel")
    ):
        plan.refuse("EPEL_MISSING")
    enabled = node["module_streams"].get(DNF_MODULE)
    if stream and enabled not in (None, stream):
        plan.refuse("MODULE_STREAM_TAKEN", found=enabled, version=version, expected=stream)
    elif stream and not enabled:
        plan.step(STREAM, "each driver branch has its own stream")


def _boot_reason(node: Node) -> str | None:
    names = [name for name in MODULES if name not in node["driver"]["modules_load"]]
    return f"no file in modules-load.d names {' or '.join(names)}" if names else None


def _unloaded_reason(node: Node) -> str | None:
    names = [name for name in MODULES if name not in node["kernel"]["modules"]]
    return f"{' and '.join(names)} not loaded" if names else None


def _error(node: Node) -> str:
    """Return why the driver does not work, as nvidia-smi and DKMS report it."""
    failure = node["nvml"]["failure"]
    error = (failure and failure["message"]) or "nvidia-smi reported no reason"
    dkms = node["driver"]["dkms"]
    if dkms["built"] is not False:
        return error
    log = f" (build log: {dkms['log']})" if dkms["log"] else ""
    return f"{error}; DKMS built no module for kernel {node['kernel']['release']}{log}"


def _persistence_reason(node: Node) -> str | None:
    daemon = node["driver"]["persistenced"]
    if not daemon["installed"]:
        return "nvidia-persistenced is not installed"
    lacking = [state for state in ("enabled", "active") if not daemon[state]]
    return f"nvidia-persistenced is not {' and not '.join(lacking)}" if lacking else None


def _choose_flavour(plan: Plan[Data], node: Node, desired: Desired) -> str | None:
    """Return the module flavour that supports every GPU of the node, or refuse."""
    gpus: dict[gpu_models.Generation, list[GpuRow]] = {}
    for gpu in node["pci"]:
        gpus.setdefault(gpu_models.generation(gpu["device"]), []).append(gpu)
    for generation, alike in gpus.items():
        if not gpu_models.supports(generation, desired["version"]):
            plan.refuse(
                "GPU_UNSUPPORTED_BY_DRIVER",
                addresses=_addresses(alike),
                generation=generation.name,
                devices=", ".join(dict.fromkeys(gpu["device"] for gpu in alike)),
                version=desired["version"],
                expected=gpu_models.branches(generation),
            )
    candidates = (
        (gpu_models.OPEN, gpu_models.PROPRIETARY)
        if desired["flavour"] == "auto"
        else (desired["flavour"],)
    )
    for flavour in candidates:
        if all(flavour in generation.flavours for generation in gpus):
            return flavour
    plan.refuse(
        "FLAVOUR_UNSUPPORTED",
        flavour=desired["flavour"],
        evidence="; ".join(
            f"{generation.name} needs {' or '.join(generation.flavours)} ({_addresses(alike)})"
            for generation, alike in gpus.items()
        ),
    )
    return None


def _addresses(gpus: Iterable[GpuRow]) -> str:
    return ", ".join(gpu["address"] for gpu in gpus)


def _refuse(plan: Plan[Data], node: Node, desired: Desired) -> None:
    driver = node["driver"]
    reboot_ok = {True: "true", False: "false", None: "not set"}[desired["reboot_ok"]]
    if node["secure_boot"]:
        plan.refuse("SECURE_BOOT_ON")
    packages = driver_packages.carriers(driver["packages"])
    if not packages and _installed_version(node):
        plan.refuse("DRIVER_FROM_ELSEWHERE", found=_installed_version(node), error=_error(node))
        return
    others = {upstream_version(version) for version in packages.values()} - {desired["version"]}
    if others:
        plan.refuse("DRIVER_BROKEN", found=" and ".join(sorted(others)), error=_error(node))
    elif "nouveau" in node["kernel"]["modules"] and not desired["reboot_ok"]:
        plan.refuse("NOUVEAU_LOADED", reboot_ok=reboot_ok)
    elif _reboot_reason(node, desired) and not desired["reboot_ok"]:
        plan.refuse("REBOOT_NEEDED", evidence=_reboot_reason(node, desired), reboot_ok=reboot_ok)
    elif _reboot_reason(node, desired):
        # The role drains only nodes whose kubelet runs as kubelet.service.
        engines.refuse_distribution(plan, node)


def _reboot_reason(node: Node, desired: Desired) -> str | None:
    """Return why the modules cannot be loaded without a reboot."""
    if "nouveau" in node["kernel"]["modules"]:
        return "nouveau is loaded"
    loaded = node["driver"]["module_version"]
    if loaded and loaded != desired["version"]:
        return f"the module of driver {loaded} is loaded, not {desired['version']}"
    return None


def _plan_absent(plan: Plan[Data], node: Node) -> None:
    """Plan the removal of our files, and of the driver if this role installed it.

    Unload first: modules in use stop the run before anything is removed. The record is removed near
    the end. It shows that the role installed the driver, so an interrupted run can continue.
    """
    driver = node["driver"]
    added = package_record.added(node, ROLE)
    is_ours = bool(driver_packages.carriers(dict.fromkeys(added, "")))
    # Dependencies, such as libraries and firmware, are useless without the driver. dnf removes them
    # itself: clean_requirements_on_remove in dnf.conf(5).
    others = set(driver["packages"]).difference(package_record.of_role(node, ROLE))
    packages = sorted([*added, *orphans(node, added, others)]) if is_ours else added
    refuse_dependants(plan, node, packages)
    loaded = [name for name in node["kernel"]["modules"] if name.startswith("nvidia")]
    files = [
        file["path"]
        for file in (BLACKLIST_FILE, MODULES_LOAD_FILE)
        if file["path"] in node["ours"]["files"]
    ]
    plan.data |= {
        "packages": packages,
        "modules": sorted(loaded, key=_unload_place),
        "persistence": driver["persistenced"]["active"],
        "files": files,
    }
    if is_ours:
        if driver["persistenced"]["active"]:
            plan.step(STOP_PERSISTENCE, "the persistence daemon uses the driver")
        plan.step(UNLOAD, f"{', '.join(loaded)} loaded" if loaded else None)
        _notice_kept(plan, node, packages)
    elif driver_packages.carriers(driver["packages"]) or _installed_version(node):
        plan.notice("DRIVER_OF_ADMIN", found=_version(node))
    plan.step(REMOVE, f"installed: {', '.join(packages)}" if packages else None)
    plan.step(REMOVE_FILES, f"this role created {', '.join(files)}" if files else None)
    if files or ROLE in node["ours"]["packages"]:
        plan.step(INITRAMFS, "it may contain removed files")
    package_record.plan_forget(plan, node, ROLE, release=RELEASE, forget=FORGET)
    plan_no_repository(plan, node, REPOSITORY_NAME, remove=REMOVE_REPOSITORY)


def _notice_kept(plan: Plan[Data], node: Node, removed: Iterable[str]) -> None:
    """Report which NVIDIA packages stay. On Red Hat's systems, dnf decides about dependencies."""
    kept = sorted(set(node["driver"]["packages"]).difference(removed))
    if kept and not systems.is_redhat(node):
        command = " ".join(("apt-get purge", *kept))
        plan.notice("DRIVER_PACKAGES_KEPT", packages=", ".join(kept), command=command)


def _unload_place(module: str) -> int:
    return _UNLOADED_LAST.index(module) if module in _UNLOADED_LAST else -1


def _installed_version(node: Node) -> str | None:
    """Return the version of the driver itself, regardless of packages."""
    driver = node["driver"]
    return node["nvml"]["driver_version"] or driver["module_version"] or driver["disk_version"]


def _version(node: Node) -> str:
    versions = driver_packages.carriers(node["driver"]["packages"]).values()
    return _installed_version(node) or ", ".join(sorted(set(versions))) or "of unknown version"
