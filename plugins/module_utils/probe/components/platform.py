# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read about the machine: system, kernel, firmware and GPUs on the PCI bus."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypedDict, cast

from ansible_collections.metal.gpu.plugins.module_utils.probe.pci import read_bus
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
from ansible_collections.metal.gpu.plugins.module_utils.read import nvidia_driver, tools

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading
    from ansible_collections.metal.gpu.plugins.module_utils.read.pci import GpuRow


_WRITTEN = ("/etc", "/var/lib")


class Values(TypedDict):
    """What only this component reads."""

    pci: list[GpuRow]
    nvswitches: list[GpuRow]
    infiniband: list[str]  # addresses of adapters
    read_only: list[str]  # folders that the roles write to


def values_of(reading: Reading) -> Values:
    """Return what this component has read, for components that come after it."""
    return cast("Values", reading.values["platform"])


def _values(reading: Reading) -> Values:
    root = reading.node.root
    bus = read_bus(root)
    return {
        "pci": bus.gpus,
        "nvswitches": bus.nvswitches,
        "infiniband": bus.infiniband,
        "read_only": [path for path in _WRITTEN if _is_read_only(root / path.lstrip("/"))],
    }


def _is_read_only(path: Path) -> bool:
    return path.is_dir() and bool(os.statvfs(path).f_flag & os.ST_RDONLY)


PROBE = Probe(
    files=(
        "/etc/machine-id",
        "/etc/os-release",
        "/usr/lib/os-release",
        "/proc/version",
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/osrelease",
        "/proc/sys/kernel/random/boot_id",
        # Only loadable modules have an initstate. Unlike /proc/modules, it exists on every kernel.
        *(f"/sys/module/{name}/initstate" for name in nvidia_driver.MODULES),
        "/sys/firmware/efi/efivars/SecureBoot-*",
    ),
    exists={
        "systemd": "/run/systemd/system",
        "headers": "/lib/modules/{release}/build",
        **{f"tool_{name}": path for name, path in tools.MARKS.items()},
    },
    values=_values,
)
