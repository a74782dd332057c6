# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find the generation of a GPU by its PCI device id, and the drivers that support it.

NVIDIA assigns device ids in blocks, one chip after the other. So an id shows the generation
without a list of every card. The blocks are those of the PCI ID repository. The driver branches
are from NVIDIA's driver and architecture matrix, and from its list of legacy GPUs.

Source: https://pci-ids.ucw.cz/read/PC/10de
Source: https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html
Source: https://www.nvidia.com/en-us/drivers/unix/legacy-gpu/
"""

from __future__ import annotations

from typing import NamedTuple

OPEN = "open"
PROPRIETARY = "proprietary"


class Generation(NamedTuple):
    """The GPUs of one architecture."""

    name: str
    flavours: tuple[str, ...]  # kernel modules that support it, the recommended one first
    first_branch: int | None  # None: older than every branch that this collection supports
    last_branch: int | None  # None: still supported


# The open module needs the GPU System Processor, which exists since Turing.
_BEFORE_FERMI = Generation("Tesla or older", (PROPRIETARY,), None, 340)
_FERMI = Generation("Fermi", (PROPRIETARY,), None, 390)
_KEPLER = Generation("Kepler", (PROPRIETARY,), None, 470)
_MAXWELL = Generation("Maxwell", (PROPRIETARY,), None, 580)
_PASCAL = Generation("Pascal", (PROPRIETARY,), None, 580)
_VOLTA = Generation("Volta", (PROPRIETARY,), None, 580)
_TURING = Generation("Turing", (OPEN, PROPRIETARY), None, None)
_AMPERE = Generation("Ampere", (OPEN, PROPRIETARY), 450, None)
_HOPPER = Generation("Hopper", (OPEN, PROPRIETARY), 525, None)
GRACE_HOPPER = Generation("Grace Hopper", (OPEN,), 525, None)
_ADA = Generation("Ada", (OPEN, PROPRIETARY), 525, None)
_BLACKWELL = Generation("Blackwell", (OPEN,), 570, None)
_BLACKWELL_ULTRA = Generation("Blackwell Ultra", (OPEN,), 580, None)
# Only the open module supports new GPUs.
NEWER = Generation("newer", (OPEN,), None, None)

# Last id of each block, in order; a block starts after the previous one.
_BLOCKS: tuple[tuple[int, Generation], ...] = (
    (0x06BF, _BEFORE_FERMI),  # … G80 … G96
    (0x06DF, _FERMI),  # GF100
    (0x0DBF, _BEFORE_FERMI),  # G98, GT215 … GT218
    (0x0F3F, _FERMI),  # GF104 … GF108
    (0x103F, _KEPLER),  # GK107, GK110
    (0x109F, _FERMI),  # GF110, GF119
    (0x10FF, _BEFORE_FERMI),  # GT218
    (0x117F, _FERMI),  # GF117
    (0x11FF, _KEPLER),  # GK104, GK106
    (0x127F, _FERMI),  # GF114, GF116
    (0x133F, _KEPLER),  # GK208
    (0x15EF, _MAXWELL),  # GM107, GM108, GM204, GM206
    (0x15FF, _PASCAL),  # GP100
    (0x17FF, _MAXWELL),  # GM200
    (0x1D7F, _PASCAL),  # GP102 … GP108
    (0x1DFF, _VOLTA),  # GV100
    (0x1FFF, _TURING),  # TU102 … TU117
    (0x20FF, _AMPERE),  # GA100
    (0x21FF, _TURING),  # TU116
    (0x22FF, _AMPERE),  # GA102
    (0x233F, _HOPPER),  # GH100
    (0x234F, GRACE_HOPPER),
    (0x23FF, _HOPPER),
    (0x25FF, _AMPERE),  # GA103 … GA107
    (0x28FF, _ADA),  # AD102 … AD107
    (0x2FFF, _BLACKWELL),  # GB100 … GB207
    (0x317F, NEWER),
    (0x31FF, _BLACKWELL_ULTRA),  # GB110
)


def generation(device: str) -> Generation:
    """Return the generation of a PCI device id such as "15f8" (hexadecimal, any case)."""
    number = int(device, 16)
    return next((found for last, found in _BLOCKS if number <= last), NEWER)


def branch(version: str) -> int:
    """Return the branch of a driver version: 580 for "580.178.04"."""
    return int(version.partition(".")[0])


def supports(found: Generation, version: str) -> bool:
    """Return whether a driver of this version supports the generation."""
    number = branch(version)
    return (found.first_branch or 0) <= number and (
        found.last_branch is None or number <= found.last_branch
    )


def why_unfit(found: Generation, version: str, flavour: str | None) -> str | None:
    """Return why a driver does not serve GPUs of a generation, in words; None if it does."""
    if not supports(found, version):
        return f"{found.name} needs {branches(found)}, and {version} is installed"
    if flavour and flavour not in found.flavours:
        return f"{found.name} needs the {found.flavours[0]} kernel module, not the {flavour} one"
    return None


def branches(found: Generation) -> str:
    """Return the text for the branches that support the generation."""
    if found.last_branch is not None:
        return f"branch {found.last_branch} or older"
    if found.first_branch is None:
        return "any branch"
    return f"branch {found.first_branch} or newer"
