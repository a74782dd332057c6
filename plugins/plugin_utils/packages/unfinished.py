# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why could a package that was fetched not be installed? No function does I/O.

The texts are those of dpkg, of rpm and of DKMS, in the locale C.
"""

from __future__ import annotations

import re

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.verdict.driver_causes import build_remedy
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.other_drivers import (
    other_drivers,
)

_FULL = re.compile(
    r"^.*(?:No space left on device|You don't have enough free space"
    r"|needs [\d.]+\w* more (?:space|inodes) on the ).*$",
    re.MULTILINE,
)
# dpkg and DKMS print the error on stdout or stderr. apt only says "returned an error code". dpkg's
# reason is below the name of the archive.
_UNCONFIGURED = re.compile(
    r"^ *(dpkg: error processing archive .*(?:\n .*)?"
    r"|dpkg: error processing package .*?:?"
    r"|.* script subprocess returned error .*"
    r"|Error! .*"
    r"|Consult \S+make\.log\b.*)$",
    re.MULTILINE,
)
# "Error! Bad return status for module build on kernel: 6.1.0-56-amd64 (x86_64)", then the log.
_BUILT = re.compile(r"module build on kernel: (?P<kernel>\S+)")
_LOG = re.compile(r"Consult /var/lib/dkms/(?P<source>[^/\s]+/(?P<version>[^/\s]+))/build/make\.log")


def disk_full(host: str, text: str) -> list[dict[str, str]]:
    """Return a finding if a disk had no space for what was to be installed."""
    lines = dict.fromkeys(_joined(one) for one in _FULL.findall(text))
    return [finding("DISK_FULL", host, error="; ".join(lines))] if lines else []


def unconfigured(host: str, text: str, node: Node) -> list[dict[str, str]]:
    """Return findings if dpkg started to install a package and could not finish.

    `node` was observed after that: it has what the compiler said about the driver's module.
    """
    lines = dict.fromkeys(_joined(one).rstrip(":.") for one in _UNCONFIGURED.findall(text))
    if not any(one.startswith("dpkg: error") for one in lines):  # rpm ignores a failed build
        return []
    consequence = finding("PACKAGES_UNCONFIGURED", host, error="; ".join(lines))
    return [*_build(host, text, node), consequence]


def _build(host: str, text: str, node: Node) -> list[dict[str, str]]:
    """Return a finding if DKMS could not build the driver's module, and the log has words."""
    kernel, builds = _BUILT.search(text), node["driver"]["dkms"]["builds"]
    # Other modules, such as ZFS, can have failed before.
    log = next((one for one in _LOG.finditer(text) if one["source"] in builds), None)
    build = builds[log["source"]] if log else None
    if not (kernel and log and build and build["error"]):
        return []
    return [
        finding(
            "DKMS_BUILD_FAILED",
            host,
            version=log["version"],
            kernel=kernel["kernel"],
            error=build["error"],
            log=build["log"] or "missing",
            source=log["source"],
            way=build_remedy(node, build["error"]) or "remove the cause",
            others=other_drivers(node, log["version"], kernel["kernel"]),
        )
    ]


def _joined(lines: str) -> str:
    return " ".join(lines.split())
