# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The script that asks a machine what its GPUs do, and the parts of its output.

The script only reads, and writes nothing on the machine. Of the kernel log it prints the lines of
NVIDIA's drivers, and of the kubelet's checkpoint not what the device plugin answered.

Source: nvidia-smi(1), `nvidia-smi --help-query-gpu`; tests/recorded/nvidia_smi_handles.yml;
tests/recorded/kubelet_checkpoint.yml
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Mapping

from ansible_collections.metal.gpu.plugins.module_utils.read import (
    kernel_log,
    kubelet_devices,
    login_refusals,
    nvidia_smi,
    pci,
)

Parts = Mapping[str, tuple[str, str]]  # exit code and text, by the name of the part

# All branches since 390 have these as well; in MiB, degrees Celsius, W and percent.
MORE = ("utilization.gpu", "memory.used", "temperature.gpu", "power.draw", "power.limit")
_MARK = "@@metal-gpu@@"
_LOG_BYTES = 128 * 1024
_QUERY = (
    "nvidia-smi",
    f"--query-gpu={','.join((*nvidia_smi.FIELDS, *MORE))}",
    "--format=csv,noheader,nounits",
)
BUS, BOUND = "/sys/bus/pci/devices", "/proc/driver/nvidia/gpus"
# A folder for each pod that the kubelet has. The kubelet's --root-dir moves it.
PODS = "/var/lib/kubelet/pods"
KILLED = ("124", "137")  # by timeout(1)
# A shell that prints on login prints before the first mark. No $() waits for nvidia-smi: one that
# hangs in the driver stays after its limit, and has its output open. The list has the GPUs that a
# query leaves out which ends at a GPU that is lost; then its exit code is not 0.
SCRIPT = f"""\
mark() {{ printf '\\n%s %s %s\\n' '{_MARK}' "$1" "$2"; }}
mark begin 0
if command -v nvidia-smi >/dev/null 2>&1; then
  timeout -k 1 {nvidia_smi.TIMEOUT_S} {shlex.join(_QUERY)} 2>&1
  code=$?
  mark smi $code
else
  code=0
  mark smi missing
fi
case $code in
  0 | {" | ".join(KILLED)}) ;;
  *) timeout -k 1 {nvidia_smi.TIMEOUT_S} {shlex.join(nvidia_smi.LIST)} 2>/dev/null ;;
esac
mark list 0
for function in {BUS}/*; do
  [ -r "$function/vendor" ] && [ ! -e "$function/physfn" ] || continue
  read -r vendor <"$function/vendor"
  [ "$vendor" = 0x{pci.NVIDIA} ] || continue
  read -r device <"$function/device"
  read -r class <"$function/class"
  driver=$(readlink "$function/driver")
  printf '%s\\n' "${{function##*/}} ${{device#0x}} ${{class#0x}} ${{driver##*/}}"
done 2>/dev/null
mark bus 0
for file in {BOUND}/*/information; do
  [ -r "$file" ] || continue
  folder=${{file%/*}}
  sed -n "s/^GPU UUID:/${{folder##*/}} &/p" "$file"
done 2>/dev/null
mark bound 0
{shlex.join(kernel_log.RING)} 2>/dev/null |
  sed -n -e 1p -e '/NVRM: /p' -e '/nvidia-nv/p' | tail -c {_LOG_BYTES}
mark log 0
sed 's/"AllocResp": *"[^"]*"/"AllocResp":""/g' {kubelet_devices.CHECKPOINT} 2>/dev/null
mark checkpoint 0
ls {PODS} 2>/dev/null
mark pods 0
"""
_END = re.compile(rf"^{_MARK} (?P<name>\w+) (?P<rc>\w+)\r?$", re.MULTILINE)
_FUNCTION = re.compile(
    r"(?P<address>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (?P<device>[0-9a-f]{4})"
    r" (?P<class>[0-9a-f]{4})[0-9a-f]{2}(?: (?P<driver>\S+))?"
)


class Unreadable(ValueError):
    """The machine did not run the script; the message says what it printed."""

    def __init__(self, stdout: str) -> None:
        words = " ".join(stdout.split())[:120]
        super().__init__(f"the machine did not run the script: it printed {words or 'nothing'}")
        refusal = login_refusals.find(stdout)
        self.code = refusal.code if refusal else "NODE_NOT_OBSERVED"  # of the finding


def split(stdout: str) -> Parts:
    """Return the parts of the output. Raises Unreadable."""
    marks = list(_END.finditer(stdout))
    names = [mark["name"] for mark in marks]
    if names[:2] != ["begin", "smi"]:
        raise Unreadable(stdout)
    return {
        mark["name"]: (mark["rc"], stdout[before.end() : mark.start()])
        for before, mark in itertools.pairwise(marks)
    }


def text(parts: Parts, name: str) -> str:
    """Return the text of a part; empty if there is none."""
    return parts.get(name, ("", ""))[1]


def gpus_on_bus(parts: Parts) -> list[pci.GpuRow]:
    """Parse the lines about the functions of NVIDIA on the bus; return the GPUs."""
    rows: list[pci.GpuRow] = []
    for line in text(parts, "bus").splitlines():
        match = _FUNCTION.fullmatch(line.strip())
        if match:
            row: pci.GpuRow = {
                "address": match["address"],
                "vendor": pci.NVIDIA,
                "device": match["device"],
                "class": match["class"],
                "driver": match["driver"],
                "numa_node": None,
            }
            rows += [row] if pci.is_gpu(row) else []
    return rows
