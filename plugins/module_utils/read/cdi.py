# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse specifications of the Container Device Interface (CDI). No I/O.

Documents are already loaded from YAML or JSON.

Source: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.mappings import section, text

# The second one is also /run/cdi, because systemd makes /var/run a link to /run.
DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
SUFFIXES = ("yaml", "json")


def parse_kind(document: object) -> str | None:
    """Return vendor and class of the devices, such as "nvidia.com/gpu"."""
    return text(document, "kind")


def parse_majors(document: object) -> dict[str, int]:
    """Return the major numbers of device files in containers, by the path on the node.

    A specification can leave them out. Then, the runtime takes those of the files.
    """
    devices = section(document).get("devices")
    parts = [document, *(devices if isinstance(devices, list) else [])]
    found = {}
    for part in parts:
        nodes = section(section(part).get("containerEdits")).get("deviceNodes")
        for node in nodes if isinstance(nodes, list) else []:
            path, major = text(node, "hostPath") or text(node, "path"), section(node).get("major")
            if path and isinstance(major, int):
                found[path] = major
    return found


def parse_devices(document: object) -> list[str]:
    """Return the qualified names of the devices, in the specification's order."""
    devices = section(document).get("devices")
    names = [text(device, "name") for device in devices] if isinstance(devices, list) else []
    kind = text(document, "kind")
    return [f"{kind}={name}" for name in names if kind and name]
