# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Which package of Ubuntu's signed modules does the next kernel lack?

Source: names in the index of noble, such as linux-modules-nvidia-580-server-6.8.0-151-generic and
linux-image-6.8.0-151-generic, 2026-11-23
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.read import kernels, packages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_driver import LoadedModule

_IMAGE = re.compile(r"linux-image-(?:unsigned-)?(\d[\d.]*-\d+)-([a-z][a-z-]*)")
MODULES = "linux-modules-nvidia-"
_OPEN = "-open"


def missing(
    installed: Iterable[str], running: str, loaded: LoadedModule | None = None
) -> str | None:
    """Return the package that the newest kernel of the running one's flavour lacks, or None.

    `loaded` is the driver that works: packages of other series can be installed beside its own.
    None, too, if the running kernel has no signed modules of it.
    """
    names = {*installed}
    end = f"-{running}"
    series = _of_driver(
        sorted(
            one[len(MODULES) : -len(end)]
            for one in names
            if one.startswith(MODULES) and one.endswith(end)
        ),
        names,
        loaded,
    )
    flavour = running.partition("-")[2].partition("-")[2]
    images = [match for match in map(_IMAGE.fullmatch, names) if match and match[2] == flavour]
    if not series or not images:
        return None
    newest = max((match[1] for match in images), key=kernels.order)
    if kernels.order(newest) <= kernels.order(running):
        return None
    packages = [f"{MODULES}{one}-{newest}-{flavour}" for one in series]
    return None if names.intersection(packages) else packages[0]


def _of_driver(series: list[str], names: set[str], loaded: LoadedModule | None) -> list[str]:
    """Return the series, such as "580-server-open", from which the loaded driver can be."""
    if loaded is None:
        return series
    branch = loaded.version.partition(".")[0]
    fitting = [
        one
        for one in series
        if one.partition("-")[0] == branch and one.endswith(_OPEN) == (loaded.flavour == "open")
    ]
    # 580 and 580-server are two series of the same branch. Its programs are there only once.
    own = [one for one in fitting if f"nvidia-utils-{one.removesuffix(_OPEN)}" in names]
    return own or fitting


def simulation(name: str) -> tuple[str, ...]:
    """Return the command that tells whether apt would install a package, and with what."""
    options = ("-q", "--no-install-recommends", *packages.UNCACHED, *packages.KEEP_KERNEL)
    return ("apt-get", *options, "--simulate", "install", name)
