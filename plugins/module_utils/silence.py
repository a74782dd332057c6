# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Which programs of a node gave no answer? No function does I/O.

Silence is not absence. Who takes it for absence installs what is there, removes what is an admin's,
and reboots a node whose kubelet runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PACKAGES, UNITS = "PACKAGES_UNKNOWN", "UNITS_UNKNOWN"


def silence(node: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the code of a finding, and its evidence, for each program that gave no answer."""
    if node["package_manager"]["error"]:
        yield PACKAGES, {"error": node["package_manager"]["error"]}
    if node["systemd"]["unknown"]:
        units = ", ".join(node["systemd"]["unknown"])
        yield UNITS, {"units": units, "error": node["systemd"]["error"]}
