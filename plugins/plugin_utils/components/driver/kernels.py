# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages follow the kernel of a node, so that its next kernel has the driver, too?

The running kernel's headers are not enough: an upgrade brings a kernel whose module nobody could
build. The kernel's meta package, such as linux-image-amd64 or linux-image-generic-hwe-22.04, has a
counterpart for the headers, which the same upgrade installs.

Source: the indexes of Debian's bookworm and trixie, 2026-11-22
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import System

_IMAGE, _HEADERS = "linux-image-", "linux-headers-"
# "6.1.0-26-cloud-amd64", "6.12.107+deb13-amd64", "6.8.0-60-generic"
_RELEASE = re.compile(r"(?P<series>\d+\.\d+)[\d.]*(?:\+[\w.]+)?(?:-\d+)?-(?P<flavour>[a-z][\w-]*)")
# Ubuntu's name for the same kernel with fewer modules.
_VIRTUAL = re.compile(r"^virtual\b")
# There, the headers depend on the kernel of their own version, so they would install a new kernel.
_HEADERS_WITH_KERNEL = (("debian", "13"),)


class Headers(NamedTuple):
    """The headers that a node lacks, with their versions; an empty one means any."""

    packages: dict[str, str]
    left: str = ""  # a package that would install another kernel as well


def flavour(release: str | None) -> str | None:
    """Return the flavour of a kernel, such as "amd64" or "generic"; None if it has none."""
    match = _RELEASE.fullmatch(release or "")
    return match["flavour"] if match else None


def meta_package(node: Node) -> str | None:
    """Return the installed meta package of the running kernel, without "linux-image-".

    None if the node's kernel does not come from one, so that no upgrade replaces it.
    """
    match = _RELEASE.fullmatch(node["kernel"]["release"] or "")
    if not match:
        return None
    found = {
        _VIRTUAL.sub("generic", name.removeprefix(_IMAGE)): package["version"]
        for name, package in node["packages"].items()
        if name.startswith(_IMAGE)
    }
    of_flavour = [one for one in found if f"{one}-".startswith(f"{match['flavour']}-")]
    of_series = [one for one in of_flavour if found[one].startswith(f"{match['series']}.")]
    return next(iter([*of_series, *of_flavour]), None)


def next_headers(node: Node) -> dict[str, str]:
    """Return the headers of the kernel that boots next, if it lacks them and apt has them."""
    newer = node["driver"]["next_kernel"]
    available = node["driver"]["headers_available"] or []
    if newer is None or newer["headers"] or newer["release"] not in available:
        return {}
    return {f"{_HEADERS}{newer['release']}": ""}


def headers(node: Node, system: System) -> Headers:
    """Return the headers to install with a module that is built on the node, on systems with apt.

    Those of the running kernel, and those that follow its meta package.
    """
    kernel = node["kernel"]
    wanted = {} if kernel["headers"] else {f"{_HEADERS}{kernel['release']}": ""}
    meta = meta_package(node)
    if meta is None or f"{_HEADERS}{meta}" in node["packages"]:
        return Headers(wanted)
    if (system.id, system.version) not in _HEADERS_WITH_KERNEL:
        return Headers({**wanted, f"{_HEADERS}{meta}": ""})
    if not wanted:
        return Headers(wanted, f"{_HEADERS}{meta}")
    return Headers({**wanted, f"{_HEADERS}{meta}": node["packages"][f"{_IMAGE}{meta}"]["version"]})
