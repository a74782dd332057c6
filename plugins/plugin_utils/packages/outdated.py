# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Is the running kernel too old for the archive? No function does I/O.

Headers and signed modules have a package for each kernel. An archive has those of its newest
kernels. Source: the indexes of Debian and Ubuntu, 2026-11-23: 6.8.0-60 of Ubuntu 24.04 has neither,
and the modules of 6.8.0-136 need driver 580.173.02 while the archive has 580.178.04.

apt refuses the open modules of another driver, and installs the proprietary ones: their packages
have no upper limit. The lower limit is the driver for which they were built. Source: all 1032
proprietary packages of noble's index have the lower limit of their open counterpart, 2026-11-23.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read.signed_modules import MODULES
from ansible_collections.metal.gpu.plugins.module_utils.read.version import upstream_version
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.sources import installs

_FIELD = re.compile(r"^(Package|Version|Depends): (.*)$", re.MULTILINE)
_BUILT_FOR = re.compile(r"\b(nvidia-kernel-common-\S+) \(>= ([^)]+)\)")


def outdated(
    host: str, release: str | None, names: Sequence[str], gone: Sequence[str], unmet: str
) -> list[dict[str, str]]:
    """Return a finding about the kernel, if its packages are missing or cannot be installed.

    `names` are the packages of this kernel, `gone` those that no repository has, and `unmet` the
    dependencies that apt cannot satisfy.
    """
    lines = [line.strip() for line in unmet.splitlines()]
    needs = [line for line in lines if line.split(" : ")[0] in names]
    if not gone and not needs:
        return []
    error = "; ".join(needs) or f"no enabled repository has {', '.join(gone)}"
    return [finding("KERNEL_OUTDATED", host, kernel=release, error=error)]


def of_modules(names: Iterable[str]) -> list[str]:
    """Return the packages of Ubuntu's signed modules among the arguments of apt."""
    bare = (name.partition("=")[0] for name in names)
    return [name for name in bare if name.startswith(MODULES)]


def of_another_driver(
    host: str, release: str | None, printed: str, shown: str, installed: Mapping[str, str]
) -> dict[str, str] | None:
    """Return a finding about modules that apt would install beside another driver than theirs.

    `printed` is apt's simulation, `shown` what `apt-cache show` says about the packages of modules.
    `installed` has the versions of the installed packages.
    """
    chosen = installs(printed)
    versions = {**installed, **chosen}
    needs = []
    for stanza in shown.split("\n\n"):
        fields = dict(_FIELD.findall(stanza))
        name = fields.get("Package", "")
        built = _BUILT_FOR.search(fields.get("Depends", ""))
        if not built or chosen.get(name) != fields.get("Version"):
            continue
        driver = upstream_version(versions.get(built[1]) or built[2])
        if driver != built[2]:
            needs.append(f"{name} was built for driver {built[2]}, and the driver is {driver}")
    if not needs:
        return None
    return finding("KERNEL_OUTDATED", host, kernel=release, error="; ".join(needs))
