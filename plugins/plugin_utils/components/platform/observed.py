# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about the machine: system, kernel, firmware and GPUs on the PCI bus."""

from __future__ import annotations

from typing import cast

from ansible_collections.metal.gpu.plugins.module_utils.observed.machine import (
    MachinePart,
    Os,
    Systemd,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.platform import Values
from ansible_collections.metal.gpu.plugins.module_utils.read import signing, tools
from ansible_collections.metal.gpu.plugins.module_utils.read.kernel_banner import parse_compiler
from ansible_collections.metal.gpu.plugins.module_utils.read.os_release import parse_os_release
from ansible_collections.metal.gpu.plugins.module_utils.read.output import failure_text
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw

# What asks for units: the known ones, and those whose names only the node has.
_SHOWS = ("systemctl", "systemctl_named")


def observe(raw: Raw) -> MachinePart:
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
