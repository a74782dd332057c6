# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about the machine: system, kernel, firmware and GPUs on the PCI bus. No I/O."""

from __future__ import annotations

from typing import TypedDict, cast

from ansible_collections.metal.gpu.plugins.module_utils.probe.components.platform import Values
from ansible_collections.metal.gpu.plugins.module_utils.read import signing, tools
from ansible_collections.metal.gpu.plugins.module_utils.read.kernel_banner import parse_compiler
from ansible_collections.metal.gpu.plugins.module_utils.read.os_release import (
    OsRelease,
    parse_os_release,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.output import failure_text
from ansible_collections.metal.gpu.plugins.module_utils.read.pci import GpuRow
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw


class Os(OsRelease):
    """The operating system."""

    architecture: str  # machine name, as from `uname -m`


class Systemd(TypedDict):
    """The units whose state systemd did not report."""

    unknown: list[str]  # units, if there is systemd
    error: str | None  # error of `systemctl`


class Kernel(TypedDict):
    """The running kernel."""

    release: str | None  # result of `uname -r`
    compiler: str | None  # program that compiled it, such as `gcc-12`
    headers: bool  # whether its headers are installed, so that modules can be built
    modules: list[str]  # loaded ones among `nvidia*`, `nouveau` and `vfio_pci`


class Observed(TypedDict):
    """The machine."""

    os: Os
    hostname: str | None
    boot_id: str | None  # it changes with each boot
    machine_id: str | None  # it stays the same until somebody installs the system anew
    read_only: list[str]  # `/etc` and `/var/lib`, if their file systems are mounted read-only
    init: str  # `systemd` or `other`
    systemd: Systemd
    kernel: Kernel
    secure_boot: bool | None  # whether it is enabled; None without EFI
    # others that write the configuration: AKS, EKS, kubeadm, Kubespray, the GPU Operator
    tools: list[str]
    pci: list[GpuRow]  # GPUs on the PCI bus (vendor 10de, class 0300 or 0302), sorted by address


# What asks for units: the known ones, and those whose names only the node has.
_SHOWS = ("systemctl", "systemctl_named")


def observe(raw: Raw) -> Observed:
    values = cast(Values, raw.values("platform"))
    return {
        "os": _os(raw),
        "hostname": raw.text("/proc/sys/kernel/hostname"),
        "boot_id": raw.text("/proc/sys/kernel/random/boot_id"),
        "machine_id": raw.text("/etc/machine-id"),
        "read_only": values["read_only"],
        "init": "systemd" if raw.exists["systemd"] else "other",
        "systemd": _systemd(raw),
        "kernel": {
            "release": raw.text("/proc/sys/kernel/osrelease"),
            "compiler": parse_compiler(raw.texts.get("/proc/version", "")),
            "headers": raw.exists["headers"],
            "modules": [path.split("/")[3] for path in raw.find("/sys/module/*/initstate")],
        },
        "secure_boot": signing.has_secure_boot(raw.texts),
        "tools": [name for name in tools.MARKS if raw.exists[f"tool_{name}"]],
        "pci": values["pci"],
    }


def _os(raw: Raw) -> Os:
    text = raw.texts.get("/etc/os-release") or raw.texts.get("/usr/lib/os-release", "")
    return {**parse_os_release(text), "architecture": raw.architecture}


def _systemd(raw: Raw) -> Systemd:
    """Return the units whose state is unknown, and why; no units if the node has no systemd."""
    asked = raw.asked["units"] if raw.exists["systemd"] else []
    unknown = [unit for unit in asked if raw.is_active(unit) is None]
    answers = [raw.outputs[name] for name in _SHOWS if name in raw.outputs]
    failed = next((answer for answer in answers if answer.rc != 0), next(iter(answers), None))
    error = failure_text(failed, "systemctl")
    return {"unknown": unknown, "error": error if unknown else None}
