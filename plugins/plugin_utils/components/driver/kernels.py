# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages follow the kernel of a node, so that its next kernel has the driver, too?

The running kernel's headers are not enough: an upgrade brings a kernel whose module nobody could
build. The kernel's meta package, such as linux-image-amd64 or linux-image-generic-hwe-22.04, has a
counterpart for the headers, and on Ubuntu for the signed modules, which the same upgrade installs.

An archive has the newest kernels only. On Debian 13, headers depend on their kernel, and on Ubuntu
the modules do. So the counterpart is wanted, and never a condition: the operation `follow_kernel`
installs it if the archive has it, and if that brings no other kernel.

Source: the indexes of Debian's bookworm and trixie, and of Ubuntu's noble, 2026-11-23
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node

_IMAGE, HEADERS = "linux-image-", "linux-headers-"
# "6.1.0-26-cloud-amd64", "6.12.107+deb13-amd64", "6.8.0-60-generic"
_RELEASE = re.compile(r"(?P<series>\d+\.\d+)[\d.]*(?:\+[\w.]+)?(?:-\d+)?-(?P<flavour>[a-z][\w-]*)")
# Ubuntu's name for the same kernel with fewer modules.
_VIRTUAL = re.compile(r"^virtual\b")
# A kernel of Debian's backports. The stable release has the headers of another kernel.
_BACKPORT = "~bpo"


def flavour(release: str | None) -> str | None:
    """Return the flavour of a kernel, such as "amd64" or "generic"; None if it has none."""
    match = _RELEASE.fullmatch(release or "")
    return match["flavour"] if match else None


def meta_package(node: Node) -> tuple[str, str] | None:
    """Return the installed meta package of the running kernel, and its version.

    The name is without "linux-image-".
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
    return next(((one, found[one]) for one in (*of_series, *of_flavour)), None)


def next_headers(node: Node) -> dict[str, str]:
    """Return the headers of the kernel that boots next, if it lacks them and apt has them."""
    newer = node["driver"]["next_kernel"]
    available = node["driver"]["headers_available"] or []
    if newer is None or newer["headers"] or newer["release"] not in available:
        return {}
    return {f"{HEADERS}{newer['release']}": ""}


def headers(node: Node) -> dict[str, str]:
    """Return the headers of the running kernel if the node lacks them, on systems with apt."""
    kernel = node["kernel"]
    return {} if kernel["headers"] else {f"{HEADERS}{kernel['release']}": ""}


def following(node: Node, prefix: str) -> list[str]:
    """Return the counterpart of the kernel's meta package that a node lacks, in apt's syntax.

    The best version comes first: that of the installed kernel. An archive has it only until the
    next update. Headers of a newer version do no harm, if they bring no kernel with them.
    """
    meta = meta_package(node)
    if not prefix or meta is None or f"{prefix}{meta[0]}" in node["packages"]:
        return []
    name, version = f"{prefix}{meta[0]}", meta[1]
    # A module that was built again has the version "6.8.0-60.63+1".
    same = [f"{name}={version}", *([] if prefix == HEADERS else [f"{name}={version}+*"])]
    return same if _BACKPORT in version else [*same, name]


def following_reason(following: Sequence[str]) -> str | None:
    """Return why a package of these alternatives has to be installed."""
    if not following:
        return None
    name = following[0].partition("=")[0]
    return f"{name} is not installed, so an upgrade of the kernel would lose the driver"
