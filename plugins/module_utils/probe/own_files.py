# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find the files that this collection wrote in directories of the system.

A file counts if its text has the block of the role that writes it. The path alone is no proof,
because an admin may use the same name. `read_own_files` does I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.probe.node_files import NodeFiles

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NOUVEAU_BLACKLIST = "/etc/modprobe.d/metal-gpu-nouveau.conf"
MODULES_LOAD = "/etc/modules-load.d/metal-gpu.conf"
MODULE_PARAMETERS = "/etc/modprobe.d/metal-gpu-parameters.conf"
PERSISTENCE_DROP_IN = "/etc/systemd/system/nvidia-persistenced.service.d/metal-gpu.conf"
FABRIC_MODULES_LOAD = "/etc/modules-load.d/metal-gpu-fabric.conf"
# Before the rule for links in /dev/char, which need the files.
DEVICE_RULE = "/etc/udev/rules.d/70-metal-gpu-device-files.rules"
OF_DRIVER = (
    *(NOUVEAU_BLACKLIST, MODULES_LOAD, FABRIC_MODULES_LOAD),
    *(MODULE_PARAMETERS, PERSISTENCE_DROP_IN, DEVICE_RULE),
)
# apt reads files without an ending, and those that end in .pref.
DRIVER_PIN = "/etc/apt/preferences.d/metal-gpu-nvidia-driver.pref"
CHAR_DEV_RULE = "/etc/udev/rules.d/71-metal-gpu-char-dev.rules"
CDI_DROP_IN = "/etc/systemd/system/nvidia-cdi-refresh.service.d/metal-gpu.conf"
FABRIC_DROP_IN = "/etc/systemd/system/nvidia-fabricmanager.service.d/metal-gpu.conf"
# systemd shows the settings of a unit to every user, but not the content of an environment file. It
# ignores files in this folder that do not end in .conf.
DOCKER_PROXY = "/etc/systemd/system/docker.service.d/metal-gpu-proxy.conf"
DOCKER_PROXY_VALUES = "/etc/systemd/system/docker.service.d/metal-gpu-proxy.env"
OF_DOCKER_PROXY = (DOCKER_PROXY, DOCKER_PROXY_VALUES)
KUBELET_DROP_IN = "/etc/systemd/system/kubelet.service.d/99-metal-gpu.conf"

# The first line of a block, as in the tasks of the roles. Lines outside a block are the admin's.
_MARK = "# BEGIN managed by Ansible, role metal.gpu.{}"
_END = "# END managed by Ansible, role metal.gpu.{}"


def read_own_files(root: Path, roles: Mapping[str, str]) -> list[str]:
    """Return the paths of the files with a block of their role, sorted.

    `roles` has the role that writes each file, by ansible.builtin.blockinfile.
    """
    files = NodeFiles(root)
    files.read_all(roles)
    return sorted(
        path for path, text in files.texts.items() if _MARK.format(roles[path]) in text.splitlines()
    )


def parse_block(text: str, role: str) -> list[str]:
    """Return the lines of the block of a role; empty without a whole block."""
    lines = text.splitlines()
    places = [
        [number for number, line in enumerate(lines) if line == mark.format(role)]
        for mark in (_MARK, _END)
    ]
    # The last ones, as for ansible.builtin.blockinfile.
    start, end = (found[-1] if found else -1 for found in places)
    return lines[start + 1 : end] if 0 <= start < end else []
