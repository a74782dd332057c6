# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs that work and report what is wrong with them: on three nodes in one run of verify.

gpu-1 has four P100, the others have one T4 each. gpu-3 has no device plugin, which its verdict says
each time. Ampere and newer GPUs remap rows: the scenario fabric has those.
"""

from __future__ import annotations

import re
from contextlib import ExitStack

import pytest
from breaks import Break, broken, of_lab

NO_PLUGIN = "DEVICE_PLUGIN_NOT_SELECTED"


def report(code: str, *fault: str) -> Break:
    return Break(code, of_lab(*fault), of_lab("restore"))


# The codes, and whether they are failures.
FAILURES = {
    "memory, the driver's advice, the compute mode": (
        report("GPU_UNRELIABLE", "ecc", "1", "2"),
        report("GPU_UNRELIABLE", "recovery-action", "0", "reset"),
        report("COMPUTE_PROHIBITED", "compute-mode", "0"),
    ),
    "no report": (
        report("GPU_HEALTH_UNKNOWN", "xml-cut"),
        report("GPU_HEALTH_UNKNOWN", "xml-garbage"),
        report("GPU_HEALTH_UNKNOWN", "xml-hang"),
    ),
}
NOTICES = {
    "a link, pages, heat": (
        report("PCIE_LINK_DIFFERS", "pcie-width", "2", "8"),
        report("GPU_RESET_DUE", "pages-pending"),
        report("GPU_THROTTLED", "throttle", "0", "hw-thermal"),
    ),
    "a slot, power, another compute mode": (
        report("PCIE_LINK_DIFFERS", "pcie-gen", "3"),
        report("GPU_THROTTLED", "throttle", "0", "hw-power-brake"),
        report("COMPUTE_EXCLUSIVE", "compute-mode", "0", "exclusive-process"),
    ),
    # No T4 and no P100 has one: healthy.
    "what is normal": (
        report("", "throttle", "1", "sw-power-cap"),
        report("", "throttle", "0", "sw-thermal"),
        report("", "pcie-width", "0", "8"),
    ),
}


@pytest.mark.parametrize("group", [*FAILURES, *NOTICES])
def test_health_of_gpus(ready, verdicts, group):
    nodes = dict(zip(ready.addresses, (FAILURES | NOTICES)[group], strict=True))
    with ExitStack() as stack:
        for node, commands in nodes.items():
            stack.enter_context(broken(ready, node, commands))
        found = verdicts("-e", "verify_capacity_timeout=1")
    expected = {
        node: {commands.codes} - {""} if group in FAILURES else set()
        for node, commands in nodes.items()
    }
    expected["gpu-3"].add(NO_PLUGIN)
    assert found == expected
    (_command, output) = ready.printed[-1]
    said = set(re.findall(r"\b([A-Z]+(?:_[A-Z]+)+) (gpu-\d): ", output))
    new = {row for row in said if row[0] != NO_PLUGIN}
    assert new == {(commands.codes, node) for node, commands in nodes.items() if commands.codes}
