# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find the programs of a node that did not answer. No function does I/O.

No answer does not mean that nothing is there. A role that concludes this installs packages that are
there, removes packages of the admin, and reboots a node whose kubelet runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.read import systemd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node

PACKAGES, UNITS = "PACKAGES_UNKNOWN", "UNITS_UNKNOWN"
_OF_SYSTEMD = "if it fails or hangs, run `systemctl daemon-reexec`, or reboot the node"
_OF_UNIT = "if it fails, correct, rename or remove the file of this unit"


def silent_programs(node: Node) -> Iterator[tuple[str, dict[str, str | None]]]:
    """Yield the code and the evidence of a finding for each program that did not answer."""
    if node["package_manager"]["error"]:
        yield PACKAGES, {"error": node["package_manager"]["error"]}
    unknown, error = node["systemd"]["unknown"], node["systemd"]["error"]
    if unknown:
        named = systemd.named_unit(error or "", unknown)
        unit, advice = (named, _OF_UNIT) if named else (unknown[0], _OF_SYSTEMD)
        evidence = {"units": ", ".join(unknown), "error": error, "unit": unit, "advice": advice}
        yield UNITS, evidence
