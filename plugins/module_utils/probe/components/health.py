# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What the GPUs report of themselves, on a node whose driver answers.

The report is read after the first query of nvidia-smi: if that hangs or fails, this one would, too.
It is parsed on the node, because it is large: 26 KB for each H100.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, cast

from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    nvidia_smi,
    nvidia_smi_lines,
    nvidia_smi_xml,
)

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading


class Values(TypedDict):
    """What only this component reads."""

    report: nvidia_smi_xml.Report


def values_of(reading: Reading) -> Values:
    """Return what this component has read, for components that come after it."""
    return cast("Values", reading.values["health"])


def _late_values(reading: Reading) -> Values:
    answer = reading.outputs.get("nvidia_smi")
    if answer is None or not nvidia_smi.parse_answer(*answer).devices:
        return {"report": nvidia_smi_xml.nothing()}
    # The shell would find another program than the first query.
    program = reading.find_program(nvidia_smi_xml.PROGRAM)
    query = Command(nvidia_smi_lines.query(program or ""), timeout_s=nvidia_smi_xml.TIMEOUT_S)
    output = reading.run({"report": query}).get("report")
    return {"report": nvidia_smi_xml.parse_report(output)}


PROBE = Probe(late_values=_late_values)
