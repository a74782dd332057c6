# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which repositories and packages does a node lack? Used by every plan that installs."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.read.packages import UNPACKED
from ansible_collections.metal.gpu.plugins.module_utils.verdict.driver_causes import build_remedy
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import url_problem
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import is_redhat

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.plugin_utils.plan import NoData, Plan


def install_reason(node: Node, desired: Mapping[str, str]) -> str | None:
    """Return why packages must be installed, or None if each has the desired version."""
    missing = [name for name in desired if name not in node["packages"]]
    others = [
        f"{name} is {found['version']}, not {version}"
        for name, version in desired.items()
        if (found := node["packages"].get(name)) and not is_version(found["version"], version)
    ]
    if missing:
        others.append(f"not installed: {', '.join(missing)}")
    return "; ".join(others) or None


def is_version(found: str, desired: str) -> bool:
    """Whether a version matches; dnf accepts a version without release, apt a pattern."""
    return not desired or fnmatchcase(found, desired) or found.startswith(f"{desired}-")


def arguments(node: Node, desired: Mapping[str, str]) -> list[str]:
    """Return packages in the syntax of the node's package manager; no version, or *, means any."""
    sign = "-" if is_redhat(node) else "="
    return [
        f"{name}{sign}{version}" if version.strip("*") else name
        for name, version in desired.items()
    ]


def hold_arguments(node: Node, desired: Mapping[str, str]) -> list[str]:
    """Return packages in the syntax of the hold command: apt by name, dnf with the version."""
    return arguments(node, desired) if is_redhat(node) else list(desired)


def hold_reason(node: Node, names: Iterable[str]) -> str | None:
    """Return why packages must be held, or None if all of them are held."""
    loose = _loose(node, names)
    return f"not held, so an upgrade would change them: {', '.join(loose)}" if loose else None


def refuse_url(plan: Plan[NoData], what: str, url: str) -> bool:
    """Refuse an address that cannot be used. Other texts must not quote it."""
    problem = url_problem(url) if "://" in url else None
    if problem:
        plan.refuse("URL_INVALID", what=what, error=problem)
    return problem is not None


def held_by_admin(node: Node, names: Iterable[str], ours: Iterable[str]) -> list[str]:
    """Return the installed packages that are held, and not by this collection."""
    others = [name for name in installed(node, names) if name not in ours]
    return [name for name in others if node["packages"][name]["held"]]


def notice_unheld(plan: Plan[NoData], node: Node, names: Iterable[str]) -> None:
    """Report which installed packages of the admin are not held; roles hold only their own."""
    loose = _loose(node, installed(node, names))
    if loose:
        command = "dnf versionlock add" if is_redhat(node) else "apt-mark hold"
        words = " ".join((command, *loose))
        plan.notice("PACKAGES_UNHELD", packages=", ".join(loose), command=words)


def _loose(node: Node, names: Iterable[str]) -> list[str]:
    observed = {name: node["packages"].get(name) for name in names}
    return [name for name, package in observed.items() if package is None or not package["held"]]


_FIX = (
    "fix the error in the build log (missing headers: `apt-get install linux-headers-$(uname -r)`)"
)


def failed(node: Node) -> list[str]:
    """Return the packages whose installation failed, according to dpkg."""
    unfinished = node["package_manager"]["unfinished"]
    return [name for name, one in unfinished.items() if one["state"] != UNPACKED]


def unfinished_evidence(node: Node) -> dict[str, str]:
    """Return the evidence about packages that dpkg could not install."""
    unfinished = node["package_manager"]["unfinished"]
    states = [f"{name} {one['version']} is {one['state']}" for name, one in unfinished.items()]
    dkms = node["driver"]["dkms"]
    if dkms["log"]:
        words = f" ({dkms['error']})" if dkms["error"] else ""
        states.append(f"build log of the kernel module: {dkms['log']}{words}")
    way = build_remedy(node, dkms["error"]) or _FIX
    return {"packages": "; ".join(states), "names": " ".join(unfinished), "way": way}


def removed_with(node: Node, names: Iterable[str]) -> list[str]:
    """Return the packages that apt also removes, because they need one of these."""
    gone = set(names)
    dependants = node["package_manager"]["dependants"]
    is_growing = True
    while is_growing:
        more = {
            name
            for name, needs in dependants.items()
            if name not in gone and any(gone.issuperset(one) for one in needs)
        }
        gone |= more
        is_growing = bool(more)
    return sorted(gone.difference(names))


def orphans(node: Node, names: Iterable[str], candidates: Iterable[str]) -> list[str]:
    """Return the dependencies that apt installed and that become useless without `names`.

    These are candidates, and packages that need a removed package. A dependency stays if a package
    that stays needs it.
    """
    automatic = set(node["package_manager"]["automatic"])
    removed, kept = set(names), set[str]()
    while True:
        gone = removed | (automatic.intersection(candidates) - kept)
        gone |= automatic.intersection(removed_with(node, gone)) - kept
        needed = {
            one
            for name, needs in node["package_manager"]["dependants"].items()
            if name not in gone
            for clause in needs
            if gone.issuperset(clause)
            for one in clause
        }
        if needed <= removed:
            return sorted(gone - removed)
        kept |= needed - removed


def refuse_dependants(plan: Plan[NoData], node: Node, names: Iterable[str]) -> None:
    """Refuse a removal that would also remove packages of the admin.

    A package that apt installed as a dependency does not count: it is useless without the others.
    """
    names = list(names)
    automatic = node["package_manager"]["automatic"]
    others = [name for name in removed_with(node, names) if name not in automatic]
    if others:
        plan.refuse(
            "PACKAGES_NEEDED",
            needed=", ".join(names),
            packages=", ".join(others),
            names=" ".join(others),
        )


def installed(node: Node, names: Iterable[str]) -> list[str]:
    """Return those of the packages that are installed."""
    return [name for name in names if name in node["packages"]]
