# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Would apt install parts of different drivers? A driver needs all its parts in one version. Pure.

apt does not notice: the dependencies accept newer versions. A pin of the admin, or what a package
with a pin has left in /etc, makes apt take them. Source: apt 2.6.1, 2026-11-23
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read.version import upstream_version
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.sources import installs

_DRIVER = re.compile(r"\d{3}(?:\.\d+){1,2}")
_PIN = re.compile(r"^Package: (?P<names>.*)\nPin: version (?P<version>\S+?)-\*$", re.MULTILINE)


def is_driver_version(version: str) -> bool:
    """Whether an upstream version has the form of a driver's, such as 580.178.04."""
    return _DRIVER.fullmatch(version) is not None


def mixed(host: str, pin: Mapping[str, str] | None, printed: str) -> dict[str, str] | None:
    """Return a finding if a simulation has packages of the pin in another driver's version."""
    match = _PIN.search(pin["block"]) if pin else None
    if match is None:
        return None
    patterns = match["names"].split()
    found = {
        name: full
        for name, full in installs(printed).items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
        and is_driver_version(version := upstream_version(full))
        and version != match["version"]
    }
    if not found:
        return None
    packages = ", ".join(f"{name} {version}" for name, version in found.items())
    names, version = " ".join(found), match["version"]
    return finding("DRIVER_PARTS_MIXED", host, packages=packages, names=names, version=version)
