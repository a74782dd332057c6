# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find the programs of a node that did not answer. No function does I/O.

No answer does not mean that nothing is there. A role that concludes this installs packages that are
there, removes packages of the admin, and reboots a node whose kubelet runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node

PACKAGES, UNITS = "PACKAGES_UNKNOWN", "UNITS_UNKNOWN"


def silent_programs(node: Node) -> Iterator[tuple[str, dict[str, str | None]]]:
    """Yield the code and the evidence of a finding for each program that did not answer."""
    if node["package_manager"]["error"]:
        yield PACKAGES, {"error": node["package_manager"]["error"]}
    if node["systemd"]["unknown"]:
        units = ", ".join(node["systemd"]["unknown"])
        yield UNITS, {"units": units, "error": node["systemd"]["error"]}
