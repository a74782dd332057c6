# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages of the container toolkit does a node need, and do they have their programs?"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import nvidia_driver
from ansible_collections.metal.gpu.plugins.module_utils.read.version import (
    is_newer,
    upstream_version,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import (
    cdi,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import (
    held_by_admin,
    install_reason,
    installed,
    notice_unheld,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.role import RolePackages
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import NoData, Plan, Step

OURS = RolePackages(
    runtime.ROLE,
    "metal-gpu-container-toolkit",
    "the container toolkit",
    "the repository of the container toolkit",
    "the toolkit packages",
    short="the toolkit repository",
)
FORMER = Step("former", "Remove the package nvidia-container-runtime")
REMOVE_FILES = Step("remove_files", "Remove the files of the container toolkit")

STEPS = (*OURS.steps, FORMER, REMOVE_FILES)

PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
_CONFIG_PACKAGE = "nvidia-container-toolkit-base"
# A toolkit that stays must have a command and a service that other steps use.
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


def plan_packages(plan: Plan[Data], node: Node, desired: Desired, *, writes_cdi: bool) -> None:
    """Plan the packages, or judge those that stay."""
    packages = dict.fromkeys(PACKAGES, f"{desired['version']}-1")
    found = node["toolkit"]["version"]
    ours = OURS.of_role(node)
    others = [name for name in installed(node, packages) if name not in ours]
    theirs = [name for name in others if install_reason(node, {name: packages[name]})]
    held = held_by_admin(node, theirs, ours)
    if found is not None and is_newer(found, desired["version"]):
        plan.notice("TOOLKIT_KEPT", found=found, expected=desired["version"])
        notice_unheld(plan, node, others)
    elif held or (theirs and found and not desired["upgrade_ok"]):
        since = _WRITES_CDI_SINCE if writes_cdi else _LINKS_SINCE
        _keep(plan, node, desired, since, held, theirs)
        notice_unheld(plan, node, others)
    else:
        plan.data["change_held"] = bool(ours)
        hold, unheld = {name: packages[name] for name in ours}, None
        if reason := install_reason(node, packages):
            OURS.plan_repository(plan, node, desired, systems.supported(node).toolkit)
            hold = OURS.plan_install(plan, node, packages, reason, created=_created(node))
            plan.data["may_remove"] += installed(node, [FORMER_PACKAGE])
            unheld = "the new version is not held yet"
        OURS.plan_hold(plan, node, hold, unheld)
        notice_unheld(plan, node, [name for name in others if name not in hold])
    if FORMER_PACKAGE in node["packages"]:
        plan.step(FORMER, f"the container toolkit replaces {FORMER_PACKAGE}")
    if not plan.has_step(OURS.install):
        _refuse_unusable(plan, node)


def _created(node: Node) -> dict[str, str]:
    """Return the file that a package creates, or has created, if it is unchanged since.

    The package manager does not know this file. The recorded checksum tells the teardown whether
    it was changed since.
    """
    is_new = node["toolkit"]["config"] is None
    is_ours = is_new or _is_config_of_package(node)
    return {_CONFIG_PACKAGE: nvidia_driver.TOOLKIT_CONFIG} if is_ours else {}


def _is_config_of_package(node: Node) -> bool:
    """Tell whether the configuration file is as the package of this role created it."""
    # The checksum is that without the edits of this role, which it gives back first.
    record, observed = node["ours"]["packages"].get(runtime.ROLE), node["toolkit"]["config_sha256"]
    entry = record["packages"].get(_CONFIG_PACKAGE) if record else None
    return entry is not None and observed is not None and entry.get("config_sha256") == observed


def _keep(
    plan: Plan[NoData], node: Node, desired: Desired, since: str, held: list[str], theirs: list[str]
) -> None:
    """Keep a toolkit of the admin, if it has what the other steps need: `since` this version."""
    found = node["toolkit"]["version"]
    evidence = {"found": found or "none", "packages": ", ".join(held or theirs)}
    if found is None or is_newer(since, found):
        plan.refuse("TOOLKIT_TOO_OLD", expected=since, **evidence)
    elif held:
        plan.notice("TOOLKIT_HELD", expected=desired["version"], **evidence)
    else:
        plan.notice("TOOLKIT_KEPT", found=found, expected=desired["version"])


def _refuse_unusable(plan: Plan[NoData], node: Node) -> None:
    """Refuse a toolkit whose packages are installed and stay, but whose programs are missing."""
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


def plan_no_packages(plan: Plan[Data], node: Node) -> None:
    """Plan the removal of what the role installed, and of the files that the packages leave.

    The record is removed near the end. It shows that the role installed the toolkit, so an
    interrupted run can continue.
    """
    packages = OURS.added(node)
    config = node["toolkit"]["config"]
    keeps_config = config is not None and not _is_config_of_package(node)
    # A purge removes the configuration file of an older package, even if the admin changed it.
    plan.data["purge"] = not keeps_config
    OURS.plan_remove(plan, node, packages)
    if installed(node, [name for name in PACKAGES if name not in packages]):
        plan.notice("TOOLKIT_OF_ADMIN", found=node["toolkit"]["version"])
    elif runtime.ROLE in node["ours"]["packages"]:
        files = [path for path in (None if keeps_config else config, *cdi.generated(node)) if path]
        plan.data["files"] = files
        plan.step(
            REMOVE_FILES, f"the packages leave them behind: {', '.join(files)}" if files else None
        )
    OURS.plan_cleanup(plan, node)
