# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does this node need for a working NVIDIA driver?

A driver that works is kept, whatever its version: replacing one takes the node's pods away, which
is not for a run that may have been meant for something else.

Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils import gpu_models, own_files
from ansible_collections.metal.gpu.plugins.module_utils.gpu_models import branch
from ansible_collections.metal.gpu.plugins.module_utils.version import upstream_version
from ansible_collections.metal.gpu.plugins.plugin_utils import (
    driver_packages,
    engines,
    package_record,
    systems,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_packages import (
    REPAIR,
    arguments,
    failed,
    hold_arguments,
    hold_gap,
    notice_unheld,
    orphans,
    packages_gap,
    plan_no_repository,
    plan_repair,
    plan_repository,
    refuse_dependants,
    unfinished_evidence,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_preflight import refuse_platform
from ansible_collections.metal.gpu.plugins.plugin_utils.repositories import Repository, is_enabled

PYTHON_DEBIAN = "Install python3-debian for the NVIDIA repository"
REPOSITORY = "Add the NVIDIA repository"
STREAM = "Enable the module stream of the driver branch"
BLACKLIST = "Block the nouveau module"
INITRAMFS = "Rebuild the initramfs"
PIN = "Pin the driver version"
HEADERS = "Install the headers of the kernel"
INSTALL = "Install the driver"
BUILD = "Build the kernel module"
HOLD = "Hold the driver"
MODULES_LOAD = "Load the NVIDIA modules at boot"
REBOOT = "Reboot into the NVIDIA driver"
LOAD = "Load the NVIDIA modules"
PERSISTENCE = "Start the persistence daemon"

STOP_PERSISTENCE = "Stop the persistence daemon"
UNLOAD = "Unload the NVIDIA modules"
REMOVE = "Remove the driver"
RELEASE = "Release the hold on the driver"
REMOVE_FILES = "Remove the module configuration of the driver"
FORGET = "Delete the record of the driver packages"
REMOVE_REPOSITORY = "Remove the NVIDIA repository"

STEPS = (
    *(REPAIR, PYTHON_DEBIAN, REPOSITORY, STREAM, PIN, HEADERS, INSTALL, HOLD, BLACKLIST),
    *(INITRAMFS, MODULES_LOAD, BUILD, REBOOT, LOAD, PERSISTENCE),
    *(STOP_PERSISTENCE, UNLOAD, REMOVE, RELEASE, REMOVE_FILES, FORGET, REMOVE_REPOSITORY),
)

ROLE = "nvidia_driver"
REPOSITORY_NAME = "metal-gpu-nvidia-driver"
DNF_MODULE = "nvidia-driver"
MODULES = ("nvidia", "nvidia_uvm")
# In this order, since each may be used by those before it; whatever else there is, such as
# nvidia_peermem, uses them and is used by none.
_UNLOADED_LAST = ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia")
# What the role writes, and how the boot gets to know of the first one.
FILES = {
    "blacklist": {
        "path": own_files.NOUVEAU_BLACKLIST,
        "block": "blacklist nouveau\noptions nouveau modeset=0\n",
    },
    "modules_load": {
        "path": own_files.MODULES_LOAD,
        "block": "".join(f"{name}\n" for name in MODULES),
    },
}
_INITRAMFS = {
    systems.DEBIAN: ["/usr/sbin/update-initramfs", "-u", "-k", "all"],
    systems.REDHAT: ["/usr/bin/dracut", "--force"],
}
# Here the driver answers, and says that GPUs are broken: nothing that another driver would mend.
_BROKEN_GPU = ("gpu_lost", "gpu_error", "inforom_corrupted", "insufficient_power")


def plan(node: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, Any]:
    """Plan the driver.

    Desired: host, state, version, flavour (auto, open or proprietary), reboot_ok (True, False or
    None for unset), and of the repository url, suite, key and fingerprint.
    """
    plan = Plan(desired["host"])
    is_missing = desired["state"] == "present" and not works(node)
    plan.data |= {
        **FILES,
        "is_missing": is_missing,
        "initramfs": _INITRAMFS.get(node["os"]["family"]),
    }
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


def works(node: Mapping[str, Any]) -> bool:
    """Whether there is a driver that answers, wherever it came from.

    A driver that shows one GPU works, whatever it says of the others.
    """
    nvml = node["nvml"]
    return (
        nvml["failure"] is None
        or nvml["failure"]["code"] in _BROKEN_GPU
        or any(gpu["error"] is None for gpu in nvml["devices"])
    )


def _plan_working(plan: Plan, node: Mapping[str, Any], desired: Mapping[str, Any]) -> None:
    """Keep a driver that works, and hold it if this role has installed it.

    One of the wanted version comes back after a boot; others are left alone.
    """
    found = _version(node)
    packages = driver_packages.carriers(node["driver"]["packages"])
    # A pin holds nothing of its own.
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
    if not node["driver"]["nouveau_blacklisted"]:
        plan.step(BLACKLIST, "nothing in modprobe.d blacklists it")
    plan.step(INITRAMFS, _ramdisk_reason(node["driver"]))
    plan.step(HOLD, hold_gap(node, ours))
    plan.step(MODULES_LOAD, _boot_reason(node))
    plan.step(LOAD, _unloaded_reason(node))
    if node["driver"]["persistenced"]["installed"]:
        plan.step(PERSISTENCE, _persistence_reason(node))
    else:
        plan.notice("PERSISTENCE_MISSING", found=found)


def _plan_present(plan: Plan, node: Mapping[str, Any], desired: Mapping[str, Any]) -> None:
    version, driver = desired["version"], node["driver"]
    system = systems.known(node)
    flavour = _choose_flavour(plan, node, desired)
    _refuse(plan, node, desired)
    if flavour is None:
        return
    known = driver_packages.choose(system, version, flavour)
    if known is None:
        plan.refuse("DRIVER_PACKAGES_UNKNOWN", found=system.name, version=version)
        return
    packages, pinning = known.packages, known.pinning
    kernel = node["kernel"]
    headers = [] if kernel["headers"] else [f"{known.headers}{kernel['release']}"]
    # In one transaction, rpm may build the module before the headers are there, and NVIDIA's
    # package ignores a build that fails. dpkg unpacks all packages before it builds.
    # Source: %post in dkms-open-nvidia.spec of NVIDIA/yum-packaging-dkms-nvidia
    apart = headers if systems.is_redhat(node) else []
    plan.data |= {
        "flavour": flavour,
        "stream": known.stream,
        "pinning": arguments(node, pinning),
        "headers": apart,
        "packages": arguments(node, packages) + ([] if apart else headers),
    }
    package_record.record(plan, node, ROLE, pinning)
    ours = package_record.record(plan, node, ROLE, packages)
    plan.data["hold"] = hold_arguments(node, ours)
    missing = packages_gap(node, packages)
    pin_missing = packages_gap(node, pinning)
    lacking = f"{headers[0]} is not installed" if headers else None
    _refuse_installation(plan, node, desired, packages, missing or pin_missing)
    if pin_missing:
        _refuse_pin(plan, node, pinning)
    if headers and not apart:
        missing = "; ".join(filter(None, (missing, lacking)))
    if missing or pin_missing:
        source = Repository.desired(REPOSITORY_NAME, desired, system.driver)
        plan_repository(plan, node, source, desired["now"], prepare=PYTHON_DEBIAN, add=REPOSITORY)
    if missing and systems.is_redhat(node):
        _plan_redhat(plan, node, version, known.stream)
    plan.step(PIN, pin_missing)
    plan.step(HEADERS, lacking if apart else None)
    plan.step(INSTALL, missing)
    plan.step(HOLD, hold_gap(node, ours))
    if not driver["nouveau_blacklisted"]:
        plan.step(BLACKLIST, "nothing in modprobe.d blacklists it")
    plan.step(INITRAMFS, _ramdisk_reason(driver))
    plan.step(MODULES_LOAD, _boot_reason(node))
    has_failed = _plan_build(plan, node, version, is_complete=not (missing or headers))
    reboot = _reboot_reason(node, desired)
    plan.step(REBOOT, reboot)
    plan.step(LOAD, None if reboot else _unloaded_reason(node))
    plan.step(PERSISTENCE, _persistence_reason(node))
    if has_failed or not (plan.steps or plan.refusals):
        _refuse_broken(plan, node, version)


def _plan_build(plan: Plan, node: Mapping[str, Any], version: str, *, is_complete: bool) -> bool:
    """Plan the module for the running kernel; tell whether its build can only fail again."""
    dkms = node["driver"]["dkms"]
    if dkms["built"] is not False:
        return False
    sources = [one for one in dkms["sources"] if one.endswith(f"/{version}")]
    plan.data["source"] = sources[0] if sources else None
    if is_complete and (dkms["log"] or not sources):
        return True
    if sources:
        plan.step(BUILD, f"DKMS has built no module for kernel {node['kernel']['release']}")
    return False


def _refuse_installation(
    plan: Plan,
    node: Mapping[str, Any],
    desired: Mapping[str, Any],
    wanted: Mapping[str, str],
    missing: str | None,
) -> None:
    """Refuse packages that no repository has, or that would replace a driver of the admin.

    A driver that gives no answer may work, and pods may use it.
    """
    if not missing:
        return
    version, system = desired["version"], systems.known(node)
    if branch(version) < system.first_branch and not desired["repository_url"]:
        plan.refuse(
            "DRIVER_BRANCH_MISSING",
            version=version,
            found=system.name,
            branch=system.first_branch,
        )
    is_silent = (node["nvml"]["failure"] or {}).get("code") == "timeout"
    is_loaded = node["driver"]["module_version"] == version
    others = driver_packages.carriers(node["driver"]["packages"])
    lacking = [name for name in driver_packages.carriers(wanted) if name not in node["packages"]]
    is_of_admin = ROLE not in node["ours"]["packages"] and others and lacking
    if (is_silent and is_loaded) or is_of_admin:
        _refuse_broken(plan, node, version)


def _refuse_broken(plan: Plan, node: Mapping[str, Any], version: str) -> None:
    if all(refusal["code"] != "DRIVER_BROKEN" for refusal in plan.refusals):
        plan.refuse("DRIVER_BROKEN", found=version, error=_error(node))


def _refuse_pin(plan: Plan, node: Mapping[str, Any], pinning: Mapping[str, str]) -> None:
    """Refuse to replace a pin of the admin: of these packages there can be only one.

    The pin of a whole branch allows newer packages beside those of the desired version.
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


def _ramdisk_reason(driver: Mapping[str, Any]) -> str | None:
    """Where nouveau is in it, it would be loaded before the file system is there."""
    if driver["initramfs_outdated"] is None:
        return None
    if not driver["nouveau_blacklisted"]:
        return "the blacklist has to be in it, too"
    return "the blacklist is newer" if driver["initramfs_outdated"] else None


def _plan_redhat(plan: Plan, node: Mapping[str, Any], version: str, stream: str | None) -> None:
    """Plan what only Red Hat's distributions need: dkms from elsewhere, and the module's stream."""
    if "dkms" not in node["packages"] and not any(
        is_enabled(found) for name, found in node["repositories"].items() if name.startswith("epel")
    ):
        plan.refuse("EPEL_MISSING")
    enabled = node["module_streams"].get(DNF_MODULE)
    if stream and enabled not in (None, stream):
        plan.refuse("MODULE_STREAM_TAKEN", found=enabled, version=version, expected=stream)
    elif stream and not enabled:
        plan.step(STREAM, "each branch of the driver is a stream")


def _boot_reason(node: Mapping[str, Any]) -> str | None:
    names = [name for name in MODULES if name not in node["driver"]["modules_load"]]
    return f"nothing in modules-load.d names {' or '.join(names)}" if names else None


def _unloaded_reason(node: Mapping[str, Any]) -> str | None:
    names = [name for name in MODULES if name not in node["kernel"]["modules"]]
    return f"{' and '.join(names)} not loaded" if names else None


def _error(node: Mapping[str, Any]) -> str:
    """Return why the driver does not work, as far as anybody has said so."""
    said = (node["nvml"]["failure"] or {}).get("message") or "nvidia-smi gave no reason"
    dkms = node["driver"]["dkms"]
    if dkms["built"] is not False:
        return str(said)
    log = f" (log of the build: {dkms['log']})" if dkms["log"] else ""
    return f"{said}; DKMS has built no module for kernel {node['kernel']['release']}{log}"


def _persistence_reason(node: Mapping[str, Any]) -> str | None:
    daemon = node["driver"]["persistenced"]
    if not daemon["installed"]:
        return "nvidia-persistenced is not installed"
    lacking = [state for state in ("enabled", "active") if not daemon[state]]
    return f"nvidia-persistenced is not {' and not '.join(lacking)}" if lacking else None


def _choose_flavour(plan: Plan, node: Mapping[str, Any], desired: Mapping[str, Any]) -> str | None:
    """Return the kernel module that drives every GPU of the node, or refuse."""
    gpus: dict[gpu_models.Generation, list[Mapping[str, Any]]] = {}
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
    wanted = (
        (gpu_models.OPEN, gpu_models.PROPRIETARY)
        if desired["flavour"] == "auto"
        else (desired["flavour"],)
    )
    for flavour in wanted:
        if all(flavour in generation.flavours for generation in gpus):
            return flavour
    plan.refuse(
        "FLAVOUR_UNSUPPORTED",
        flavour=desired["flavour"],
        evidence="; ".join(
            f"{generation.name} takes {' or '.join(generation.flavours)} ({_addresses(alike)})"
            for generation, alike in gpus.items()
        ),
    )
    return None


def _addresses(gpus: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(gpu["address"] for gpu in gpus)


def _refuse(plan: Plan, node: Mapping[str, Any], desired: Mapping[str, Any]) -> None:
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
        # Its pods cannot be moved before the reboot: only a kubelet of its own is asked for them.
        engines.refuse_distribution(plan, node)


def _reboot_reason(node: Mapping[str, Any], desired: Mapping[str, Any]) -> str | None:
    """Return why the modules cannot simply be loaded."""
    if "nouveau" in node["kernel"]["modules"]:
        return "nouveau is loaded"
    loaded = node["driver"]["module_version"]
    if loaded and loaded != desired["version"]:
        return f"the module of driver {loaded} is loaded, not of {desired['version']}"
    return None


def _plan_absent(plan: Plan, node: Mapping[str, Any]) -> None:
    """Take the driver away, if this role has brought it, and our files.

    Unload first: modules in use stop the run while everything is still there. The record goes near
    the end: it tells that the driver is ours, so a run that was cut short is taken up again.
    """
    driver = node["driver"]
    brought = package_record.brought(node, ROLE)
    is_ours = bool(driver_packages.carriers(dict.fromkeys(brought, "")))
    # What came along, such as libraries and firmware, is of no use without it. dnf removes that
    # itself: clean_requirements_on_remove in dnf.conf(5).
    others = set(driver["packages"]).difference(package_record.of_role(node, ROLE))
    along = orphans(node, brought, others) if is_ours else []
    packages = sorted([*brought, *along]) if is_ours else brought
    refuse_dependants(plan, node, packages)
    loaded = [name for name in node["kernel"]["modules"] if name.startswith("nvidia")]
    files = [file["path"] for file in FILES.values() if file["path"] in node["ours"]["files"]]
    plan.data |= {
        "packages": packages,
        "modules": sorted(loaded, key=_unload_place),
        "persistence": driver["persistenced"]["active"],
        "files": files,
    }
    if is_ours:
        if driver["persistenced"]["active"]:
            plan.step(STOP_PERSISTENCE, "it uses the driver")
        plan.step(UNLOAD, f"{', '.join(loaded)} loaded" if loaded else None)
        _notice_kept(plan, node, packages)
    elif driver_packages.carriers(driver["packages"]) or _installed_version(node):
        plan.notice("DRIVER_OF_ADMIN", found=_version(node))
    plan.step(REMOVE, f"installed: {', '.join(packages)}" if packages else None)
    plan.step(REMOVE_FILES, f"{', '.join(files)} are of this role" if files else None)
    if files or ROLE in node["ours"]["packages"]:
        plan.step(INITRAMFS, "it may hold what is gone")
    package_record.plan_forget(plan, node, ROLE, release=RELEASE, forget=FORGET)
    plan_no_repository(plan, node, REPOSITORY_NAME, remove=REMOVE_REPOSITORY)


def _notice_kept(plan: Plan, node: Mapping[str, Any], removed: Iterable[str]) -> None:
    """Name the driver's packages that stay. On Red Hat's systems dnf decides about dependencies."""
    kept = sorted(set(node["driver"]["packages"]).difference(removed))
    if kept and not systems.is_redhat(node):
        command = " ".join(("apt-get purge", *kept))
        plan.notice("DRIVER_PACKAGES_KEPT", packages=", ".join(kept), command=command)


def _unload_place(module: str) -> int:
    return _UNLOADED_LAST.index(module) if module in _UNLOADED_LAST else -1


def _installed_version(node: Mapping[str, Any]) -> str | None:
    """Return the version of the driver itself, whatever packages there are."""
    driver = node["driver"]
    found = node["nvml"]["driver_version"] or driver["module_version"] or driver["disk_version"]
    return str(found) if found else None


def _version(node: Mapping[str, Any]) -> str:
    versions = driver_packages.carriers(node["driver"]["packages"]).values()
    return _installed_version(node) or ", ".join(sorted(set(versions))) or "of unknown version"
