# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Which device files does a part of a GPU (MIG instance) have?

A program that uses an instance needs the file of the GPU, that of the GPU instance and that of the
compute instance. The driver says which files these are, also of instances that do not exist.

Source: tests/recorded/mig.yml
"""

from __future__ import annotations

import re

# The minor numbers of all files, by what they give access to. It has thousands of lines.
MINORS = "/proc/driver/nvidia-caps/mig-minors"
_FILE = "/dev/nvidia-caps/nvidia-cap"
_CAPABILITY = re.compile(rf"{_FILE}(?P<minor>\d+)", re.ASCII)
_LINE = re.compile(r"^(?P<name>\S+/access) (?P<minor>\d+)$", re.ASCII | re.MULTILINE)
# config and monitor: they belong to no instance.
_COMMON = ("1", "2")


def parse_minors(text: str) -> dict[str, int]:
    """Parse MINORS: the minor numbers by names such as gpu0/gi1/ci0/access."""
    return {match["name"]: int(match["minor"]) for match in _LINE.finditer(text)}


def instance_files(
    minors: dict[str, int], gpu: int | None, gpu_instance: int | None, compute_instance: int | None
) -> list[str]:
    """Return the files of an instance, without that of its GPU; empty if they are not known.

    `gpu` is the minor number of the GPU's own file.
    """
    instance = f"gpu{gpu}/gi{gpu_instance}"
    found = [minors.get(f"{instance}{part}/access") for part in ("", f"/ci{compute_instance}")]
    return [] if None in found else [f"{_FILE}{minor}" for minor in found]


def is_of_instance(path: str) -> bool:
    """Tell whether a device file gives access to an instance."""
    match = _CAPABILITY.fullmatch(path)
    return match is not None and match["minor"] not in _COMMON
