# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The archive of Debian or Ubuntu, and the components of it that a node's sources have.

The role does not edit the sources of the admin. It writes a file of its own with the components
that are missing, and the address and the key of the admin's source. No function does I/O.

Source: sources.list(5); the sources of Debian's and Ubuntu's installations. Tried with apt 2.6.1 on
2026-11-22: it reads both files, and none if one of them has no Signed-By or another one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.probe.package_sources import EMBEDDED_KEY
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.module_utils.probe.package_sources import (
        PackageSource,
    )
    from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import System

# Ubuntu's drivers and modules come with updates. Debian's come with point releases, and with
# security updates, which have an address of their own.
_SUITES = {"debian": "{0}", "ubuntu": "{0} {0}-updates"}
_MAIN = "main"
# The keyrings of Debian's and Ubuntu's packages debian-archive-keyring and ubuntu-keyring.
_KEYRING = re.compile(r"/(?:debian|ubuntu)-archive-[\w-]*\.(?:gpg|pgp|asc)$")


class Unclear(NamedTuple):
    """Sources of which any may be the system's archive, or none is."""

    urls: tuple[str, ...]


def lacking(node: Node, system: System, components: Iterable[str], ours: str) -> list[str]:
    """Return the components that no source of the admin has; `ours` is the path of our file."""
    return lacking_in(_sources(node, system), components, ours)


def lacking_in(found: Iterable[PackageSource], components: Iterable[str], ours: str) -> list[str]:
    """Return the components that none of these sources has."""
    there = {
        component
        for source in found
        if source["path"] != ours
        for component in source["components"].split()
    }
    return [one for one in components if one not in there]


def security(node: Node, system: System) -> list[PackageSource]:
    """Return the sources of the security updates."""
    return [one for one in node["package_sources"] if one["suite"] == f"{system.codename}-security"]


def suites(system: System) -> str:
    """Return the suites that our source of the archive has."""
    return _SUITES[system.id].format(system.codename)


def own(node: Node, system: System) -> PackageSource | Unclear:
    """Return the admin's source of the archive."""
    for source in _sources(node, system):
        if _MAIN in source["components"].split():
            return source
    suited = [one["url"] for one in node["package_sources"] if one["suite"] == system.codename]
    return Unclear(tuple(dict.fromkeys(suited)))


def problem(found: PackageSource) -> str | None:
    """Return why no other file can have the archive of this source, or None."""
    if found["credentials"]:
        return "its address has credentials, which the role does not copy"
    if found["signed_by"] == EMBEDDED_KEY:
        return "it contains the key itself, which the role does not copy"
    return None


def repository(
    name: str, found: PackageSource, suites_: str, components: Iterable[str]
) -> Repository:
    """Return a source of our own with these components of the admin's archive."""
    return Repository(
        name,
        found["url"],
        suites_,
        " ".join(components),
        key="",
        fingerprint="",
        signed_by=found["signed_by"],
    )


def _sources(node: Node, system: System) -> list[PackageSource]:
    """Return the sources of the system's archive: not those of others that use its codename.

    Vendors call their suites after a release, too, and their components "main".
    """
    suited = [one for one in node["package_sources"] if one["suite"] == system.codename]
    urls = {one["url"] for one in suited if _is_archive(node, system, one)}
    return [one for one in suited if one["url"] in urls]


def _is_archive(node: Node, system: System, source: PackageSource) -> bool:
    """Tell whether a source is the system's archive: by its keyring, or by its other suites.

    Nobody but the archive has updates and security updates of a release.
    """
    if _KEYRING.search(source["signed_by"]):
        return f"/{system.id}-archive-" in source["signed_by"]
    others = [f"{system.codename}-{one}" for one in ("updates", "security")]
    return any(
        one["url"] == source["url"] and one["suite"] in others for one in node["package_sources"]
    )
