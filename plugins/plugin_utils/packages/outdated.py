# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Is the running kernel too old for the archive? No function does I/O.

Headers and signed modules have a package for each kernel. An archive has those of its newest
kernels. Source: the indexes of Debian and Ubuntu, 2026-11-23: 6.8.0-60 of Ubuntu 24.04 has neither,
and the modules of 6.8.0-136 need driver 580.173.02 while the archive has 580.178.04.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding


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
