# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does the kernel of a node load modules that are built on the node, and what makes it do so?"""

from __future__ import annotations

import shlex

from ansible_collections.metal.gpu.plugins.module_utils.read.signing import is_path
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node

_AT_THE_CONSOLE = (
    'reboot the node, and choose "Enroll MOK", "Continue", "Yes" at its console within 10 seconds, '
    "enter the password, and run again"
)


def refuses_unsigned(node: Node) -> bool:
    """Whether Secure Boot is on, and the firmware does not trust the key of DKMS."""
    key = node["driver"]["signing"]
    return bool(node["secure_boot"]) and not (key and key["state"] == "enrolled")


def way_out(node: Node) -> str:
    """Return how an admin lets the firmware trust the key of DKMS."""
    key = node["driver"]["signing"]
    if key is None or key["certificate"] is None:
        is_ubuntu = node["os"]["id"] == "ubuntu"
        create = "update-secureboot-policy --new-key" if is_ubuntu else "dkms generate_mok"
        return f"create a key with `{create}`, and run again for the next step"
    if key["state"] == "requested":
        return f"confirm the key {key['certificate']}: {_AT_THE_CONSOLE}"
    unknown = f" (its state is unknown: {key['error']})" if key["error"] else ""
    path = shlex.quote(key["certificate"]) if is_path(key["certificate"]) else "FILE"
    return (
        f"enrol the key of DKMS{unknown}: run `mokutil --import {path}`, set a "
        f"one-time password, {_AT_THE_CONSOLE}"
    )
