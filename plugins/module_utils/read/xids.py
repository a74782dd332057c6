# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What the numbers of Xid errors mean for a GPU.

The driver prints them to the kernel log. NVIDIA's catalogue says what to do at once. Our tier says
what the number means for the GPU. A number that is not here is unknown.

Source: NVIDIA/open-gpu-kernel-modules 595.45.04, nverror.h and kernel_rc.c
Source: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""

from __future__ import annotations

from typing import NamedTuple

HARDWARE = "hardware"  # the GPU, or what it needs, is broken
RESET = "reset"  # the GPU works again after a reset
APPLICATION = "application"  # a program failed, and the GPU works
INFORMATION = "information"  # nothing has to be done
UNKNOWN = "unknown"  # what it means for the GPU is not known

RECOVERY_CHANGED = 154
OFF_THE_BUS = 79
ENDED = 45  # of a program, after an earlier error

# Codes of the recovery action in the words of Xid 154, and the action of the catalogue. Others,
# such as 3 (Drain P2P) and 5 (Recover IMEX Domain), are no failure of the GPU.
RECOVERY = {1: "RESET_GPU", 2: "RESTART_BM", 4: "RESET_GPU"}
# Actions after which a GPU works again when the driver takes them back: resets and reboots.
HEALING = frozenset((1, 2, 4, 6, 7))
# The driver reports this one for every GPU of a machine when one of them needs it.
REBOOT_REQUIRED = 2

# SXid errors of NVSwitches that are fatal even without the word.
FATAL_SXIDS = frozenset((12020, 22003, 22011, *range(23001, 23018)))
# NVIDIA's device plugin offers a GPU in spite of these. It does not see SXid errors.
IGNORED_BY_PLUGIN = frozenset((13, 31, 43, 45, 68, 109))
# Links of an NVSwitch to a GPU that fell off the bus.
LINKS_DOWN = 20034


class Xid(NamedTuple):
    """The meaning of a number."""

    tier: str
    action: str | None  # NVIDIA's word
    meaning: str
    # Whether only a line with the word "Fatal" counts.
    is_graded: bool = False


# Numbers | NVIDIA's action | meaning
_TEXTS = {
    HARDWARE: """
48 | WORKFLOW_XID_48 | memory error that could not be corrected
54 | CHECK_MECHANICALS | power cable missing
57 | CONTACT_SUPPORT | memory interface does not train
58 | CONTACT_SUPPORT | memory interface unstable
64 | RESET_GPU | defective memory could not be replaced by a spare row
74 | WORKFLOW_NVLINK_ERR | NVLink error
79 | RESTART_BM | GPU off the bus
""",
    RESET: """
46 | RESET_GPU | GPU stopped working
62 | RESET_GPU | power controller halted
95 | RESET_GPU | memory error that affects all programs
109 | RESET_GPU | GPU could not switch between programs
110 | RESET_GPU | security fault
119 | RESET_GPU | system processor (GSP) does not answer
120 | RESET_GPU | error of the system processor (GSP)
136 | RESET_GPU | NVLink does not train
140 | RESET_GPU | memory error that could not be corrected
143 | RESET_GPU | GPU did not initialize
144-150 | WORKFLOW_NVLINK5_ERR | NVLink error
151 | RESTART_VM | key rotation failed
155 | RESET_GPU | NVLink error
156 | RESET_GPU | part of the GPU is retired
158 | RESET_GPU | fatal timeout
""",
    APPLICATION: """
8 | RESTART_APP | program stopped: timeout
11 25 32 80 | RESTART_APP | invalid commands of a program
13 | RESTART_APP | exception in a program
31 | RESTART_APP | invalid memory access of a program
39-41 70-72 75-77 85 126-135 | RESTART_APP | copy engine error
43 | IGNORE | program stopped
45 | WORKFLOW_XID_45 | program ended after an earlier error
60 | RESTART_APP | video processor error
68 83 84 88 89 96-98 | RESTART_APP | video decoder error
69 | RESTART_APP | graphics engine error
78 | UPDATE_SWFW | virtual GPU does not start
82 99-105 | RESTART_APP | JPEG decoder error
86 139 | RESTART_APP | optical flow error
94 | RESTART_APP | memory error that ended one program
137 | IGNORE | invalid NVLink access of a program
""",
    INFORMATION: """
14 106-108 | IGNORE | test message
37 38 | IGNORE | firmware error
44 | IGNORE | graphics engine error
63 | IGNORE | defective memory replaced by a spare row
66 67 | IGNORE | illegal access of the driver
92 | IGNORE | many corrected memory errors
93 | IGNORE | many writes to the infoROM
121 | IGNORE | error of the link to the CPU
141 | IGNORE | CUDA fast path error
152 153 | IGNORE | error of a deep learning accelerator
154 | XID_154 | recovery action changed
162-165 | | power smoothing
""",
    UNKNOWN: """
42 61 | CONTACT_SUPPORT | internal error
56 81 | CONTACT_SUPPORT | display error
65 73 142 | CONTACT_SUPPORT | video encoder error
157 | IGNORE | part of the GPU could not be retired
159 | CHECK_UVM | error between CPU and GPU memory
160 | IGNORE | channel is retired
161 | IGNORE | channel could not be retired
166 170 | | security error of NVLink
167 | | PCIe timeout
168 | | less memory than the model has
169 | | security processor halted
171 | | memory error that could not be corrected
172 | | cache error that could not be corrected
173 | | link to the CPU failed
174 | | program stopped
175 | | memory error
176 | | corrected PCIe errors
""",
}
_GRADED = range(144, 151)


def _numbers(text: str) -> list[int]:
    """Return the numbers of "39-41 70"."""
    found: list[int] = []
    for part in text.split():
        first, _dash, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _parse() -> dict[int, Xid]:
    found: dict[int, Xid] = {}
    for tier, text in _TEXTS.items():
        for line in text.strip().splitlines():
            numbers, action, meaning = (cell.strip() for cell in line.split("|"))
            for number in _numbers(numbers):
                found[number] = Xid(tier, action or None, meaning, number in _GRADED)
    return found


XIDS = _parse()


def look_up(number: int) -> Xid:
    return XIDS.get(number, Xid(UNKNOWN, None, "meaning unknown"))
