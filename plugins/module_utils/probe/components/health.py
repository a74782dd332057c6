# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What the GPUs report of themselves, on a node whose driver answers.

The report is read after the first query of nvidia-smi: if that hangs or fails, this one would, too.
It is parsed on the node, because it is large: 26 KB for each H100. So is the driver's list of the
files of MIG instances, which is read only if there are instances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, cast

from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    mig,
    nvidia_driver,
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
    found = nvidia_smi_xml.parse_report(output)
    _add_files(reading, found)
    return {"report": found}


def _add_files(reading: Reading, report: nvidia_smi_xml.Report) -> None:
    """Add the files of MIG instances, as far as the driver says which these are."""
    split = [gpu for gpu in report["gpus"] if gpu["mig_instances"]]
    if not split:
        return
    try:
        listed = (reading.node.root / mig.MINORS.lstrip("/")).read_text(errors="replace")
    except OSError:  # the driver has no such list
        return
    minors = mig.parse_minors(listed)
    texts = {path.lower(): text for path, text in reading.files.texts.items()}
    for gpu in split:
        path = f"/proc/driver/nvidia/gpus/{gpu['pci_address']}/information"
        number = nvidia_driver.parse_minor(texts.get(path, ""))
        for one in gpu["mig_instances"] or ():
            numbers = (number, one["gpu_instance"], one["compute_instance"])
            one["files"] = mig.instance_files(minors, *numbers)


PROBE = Probe(late_values=_late_values)
