# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The archive of Debian or Ubuntu, and the components of it that a node's sources have.

The role does not edit the sources of the admin. It writes a file of its own with the components
that are missing, and the address and the key of the admin's source. No function does I/O.

Source: sources.list(5); the sources of Debian's and Ubuntu's installations. Tried with apt 2.6.1 on
2026-11-22: it reads both files, and none if one of them has no Signed-By or another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.probe.package_sources import EMBEDDED_KEY
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.metal.gpu.plugins.module_utils.probe.package_sources import (
        PackageSource,
    )
    from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
    from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import System

# The archives, for a node whose sources show none.
_DEFAULTS = {
    "debian": ("http://deb.debian.org/debian", "/usr/share/keyrings/debian-archive-keyring.gpg"),
    "ubuntu": (
        "http://archive.ubuntu.com/ubuntu",
        "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
    ),
}
# Ubuntu's drivers and modules come with updates. Debian's come with point releases.
_SUITES = {"debian": "{0}", "ubuntu": "{0} {0}-updates"}
_MAIN = "main"


def lacking(node: Node, system: System, components: Iterable[str], ours: str) -> list[str]:
    """Return the components that no source of the admin has; `ours` is the path of our file."""
    found = {
        component
        for source in _sources(node, system)
        if source["path"] != ours
        for component in source["components"].split()
    }
    return [one for one in components if one not in found]


def own(node: Node, system: System) -> PackageSource:
    """Return the admin's source of the archive, or the one of an installation."""
    for source in _sources(node, system):
        if _MAIN in source["components"].split():
            return source
    url, keyring = _DEFAULTS[system.id]
    return {
        "path": "",
        "url": url,
        "suite": system.codename,
        "section": "",
        "components": _MAIN,
        "signed_by": keyring,
        "unsigned": "",
        "credentials": False,
    }


def problem(found: PackageSource) -> str | None:
    """Return why no other file can have the archive of this source, or None."""
    if found["credentials"]:
        return "its address has credentials, which the role does not copy"
    if found["signed_by"] == EMBEDDED_KEY:
        return "it contains the key itself, which the role does not copy"
    return None


def repository(
    name: str, system: System, found: PackageSource, components: Iterable[str]
) -> Repository:
    """Return a source of our own with these components of the admin's archive."""
    return Repository(
        name,
        found["url"],
        _SUITES[system.id].format(system.codename),
        " ".join(components),
        key="",
        fingerprint="",
        signed_by=found["signed_by"],
    )


def _sources(node: Node, system: System) -> list[PackageSource]:
    """Return the sources of the system's archive: not those of others that use its codename.

    Those of the archive have the component main, or the address of one that has it.
    """
    suited = [one for one in node["package_sources"] if one["suite"] == system.codename]
    whole = [one for one in suited if _MAIN in one["components"].split()]
    named = [one for one in whole if one["url"].rstrip("/").endswith(f"/{system.id}")]
    urls = {one["url"] for one in named or whole}
    return [one for one in suited if one["url"] in urls]
