# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which driver does a node get, and what prevents its installation?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read.version import upstream_version
from ansible_collections.metal.gpu.plugins.module_utils.verdict import driver_causes
from ansible_collections.metal.gpu.plugins.module_utils.verdict.kernel_log import quote_log
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    origin,
    other_drivers,
    runfile,
    secure_boot,
    source,
    state,
    steps,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    packages as driver_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.fit import (
    AUTO,
    DISTRIBUTION,
    NVIDIA,
    RUNFILE,
    Reason,
    Wish,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.source import (
    Choice,
    Refused,
    choose_source,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan

# What ends a plan for another driver.
BROKEN = ("DRIVER_BROKEN", "DRIVER_FROM_ELSEWHERE")
_SEARCH = "read `dmesg | grep -iE 'nvrm|nvidia|module'` on the node"
_REMOVE = "remove it and run again"
_VERSION = re.compile(r"\d{3}(?:\.\d+)+")


def choose(plan: Plan[Data], node: Node, desired: Desired) -> Choice | None:
    """Return the driver for a node, or refuse with every reason."""
    found = choice_for(node, desired)
    if isinstance(found, Refused):
        for reason in found.reasons:
            more = {"error": state.error(node), "key": secure_boot.way_out(node)}
            plan.refuse(reason.code, **{**more, **reason.evidence})
        return None
    return found


def choice_for(node: Node, desired: Desired) -> Choice | Refused:
    """Return what would be installed on a node."""
    if desired["version"] and not _VERSION.fullmatch(desired["version"]):
        expected = "a whole version such as '580.178.04'"
        return Refused((_invalid("nvidia_driver_version", f"'{desired['version']}'", expected),))
    if desired["source"] == RUNFILE:
        wrong = runfile.invalid(
            desired["runfile_url"], desired["runfile_sha256"], desired["version"]
        )
        if wrong:
            return Refused(tuple(_invalid(*one) for one in wrong))
    wish, machine, made_by = wish_for(desired), other_drivers.machine(node), origin.maker(node)
    is_known = state.is_ours(node) or wish.mirror == source.OWN_SOURCE
    if wish.source == AUTO and is_known and made_by in (NVIDIA, DISTRIBUTION):
        # What speaks for a source, such as Secure Boot, can change later. The driver stays. It also
        # shows which packages the node's own sources have.
        found = choose_source(machine, wish._replace(source=made_by))
        if isinstance(found, Choice):
            return found
    return choose_source(machine, wish)


def wish_for(desired: Desired) -> Wish:
    """Return what the variables ask for."""
    version = desired["version"]
    if desired["source"] == RUNFILE:
        version = version or runfile.parse_name(desired["runfile_url"]).version or ""
    mirror = source.MIRROR if desired["repository_url"] else ""
    if not desired["repository"]:
        mirror = source.OWN_SOURCE
    return Wish(
        desired["source"],
        version,
        desired["branch"] or 0,
        desired["flavour"],
        mirror,
    )


def _invalid(name: str, found: str, expected: str) -> Reason:
    evidence = {"name": name, "found": found, "expected": expected, "role": steps.ROLE}
    return Reason("VARIABLE_INVALID", evidence)


def refuse_node(plan: Plan[Data], node: Node, desired: Desired, choice: Choice | None) -> None:
    """Refuse a node whose driver or loaded modules the role must not replace."""
    packages = driver_packages.carriers(node["driver"]["packages"])
    found = state.installed_version(node)
    if not packages and found:
        refuse_elsewhere(plan, node, found)
        return
    versions = driver_packages.versions(packages)
    unfit = {one for one in versions if choice and not choice.fits(one)}
    reboot = state.reboot_reason(node, choice)
    is_other = bool(packages) and choice is not None and not origin.is_of(node, choice, AUTO)
    if unfit or is_other:
        refuse_broken(plan, node, *(unfit or versions))
    else:
        refuse_reboot(plan, node, desired, reboot)


def refuse_reboot(plan: Plan[Data], node: Node, desired: Desired, reboot: str | None) -> None:
    """Refuse a reboot that is not allowed, or that the role cannot prepare."""
    if reboot and not desired["reboot_ok"]:
        reboot_ok = "not set" if desired["reboot_ok"] is None else "false"
        code = "NOUVEAU_LOADED" if state.rival(node) else "REBOOT_NEEDED"
        plan.refuse(code, evidence=reboot, reboot_ok=reboot_ok)
    elif reboot:
        # The role drains only nodes whose kubelet it knows.
        engines.refuse_distribution(plan, node)


def refuse_installation(
    plan: Plan[Data], node: Node, choice: Choice, packages: Mapping[str, str], reason: str | None
) -> None:
    """Refuse packages that would replace a driver of the admin.

    A driver that does not answer may work, and pods may use it.
    """
    if not reason:
        return
    failure = node["nvml"]["failure"]
    is_silent = failure is not None and failure["code"] == "timeout"
    is_loaded = choice.fits(node["driver"]["module_version"])
    installed = driver_packages.carriers(node["driver"]["packages"])
    missing = [name for name in driver_packages.carriers(packages) if name not in node["packages"]]
    is_of_admin = steps.ROLE not in node["ours"]["packages"] and installed and missing
    if (is_silent and is_loaded) or is_of_admin:
        refuse_broken(plan, node, choice.driver)


def refuse_broken(plan: Plan[Data], node: Node, *versions: str) -> None:
    """Refuse an installed driver that does not work, with what is observed of its causes."""
    if any(refusal["code"] == "DRIVER_BROKEN" for refusal in plan.refusals):
        return
    installed = driver_packages.versions(node["driver"]["packages"])
    found = f"driver {versions[0]} is installed but does not work"
    if len(versions) > 1:
        parts = " and ".join(sorted(versions))
        found = f"parts of the drivers {parts} are installed and do not work"
    causes = [*_mixed(node)] if len(installed) > 1 else driver_causes.of_driver(node)
    plan.refuse(
        "DRIVER_BROKEN",
        found=found,
        error=_error(node, causes),
        remedy=driver_causes.remedies(causes, f"{_SEARCH}; repair the driver, or {_REMOVE}"),
    )


def refuse_elsewhere(plan: Plan[Data], node: Node, version: str) -> None:
    """Refuse a driver of no package that does not work."""
    causes = driver_causes.of_driver(node)
    way = driver_causes.remedies(causes, _SEARCH)
    failure = node["nvml"]["failure"]
    if failure is None or failure["code"] != "timeout":  # the removal would hang, too
        way += f"; or {_REMOVE}; `nvidia-uninstall` removes the driver of NVIDIA's .run installer"
    error = _error(node, causes)
    plan.refuse("DRIVER_FROM_ELSEWHERE", found=version, error=error, remedy=way)


def _error(node: Node, causes: Iterable[driver_causes.Cause]) -> str:
    logged = quote_log(node, [gpu["address"] for gpu in node["pci"]])
    return state.error(node) + logged + driver_causes.texts(causes)


def _mixed(node: Node) -> Iterator[driver_causes.Cause]:
    """Yield that the packages of the driver have several versions, which no reboot changes."""
    names: dict[str, list[str]] = {}
    for name, version in driver_packages.carriers(node["driver"]["packages"]).items():
        names.setdefault(upstream_version(version), []).append(name)
    words = "; ".join(f"{', '.join(some)}: {version}" for version, some in sorted(names.items()))
    every = " ".join(sorted(name for some in names.values() for name in some))
    commands = f"`apt-mark unhold {every}`, then `apt-get install {every}`"
    if systems.is_redhat(node):
        commands = f"`dnf versionlock delete {every}`, then `dnf upgrade {every}`"
    yield driver_causes.Cause(
        f"its packages have several versions ({words})",
        f"bring all packages of the driver to one version, and hold all of them: {commands}; then "
        "drain the node and reboot it; a reboot alone changes nothing",
    )
