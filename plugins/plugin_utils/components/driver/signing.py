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

# What dkms 3.0.10 of Debian 12, which has no generate_mok, runs before it signs its first module.
_BY_OPENSSL = (
    "install -d /var/lib/dkms && openssl req -new -x509 -nodes -days 36500 "
    '-subj "/CN=DKMS module signing key" -newkey rsa:2048 -keyout /var/lib/dkms/mok.key '
    "-outform DER -out /var/lib/dkms/mok.pub"
)


def refuses_unsigned(node: Node) -> bool:
    """Whether Secure Boot is on, and the firmware does not trust the key of DKMS."""
    key = node["driver"]["signing"]
    return bool(node["secure_boot"]) and not (key and key["state"] == "enrolled")


def way_out(node: Node) -> str:
    """Return how an admin lets the firmware trust the key of DKMS."""
    key = node["driver"]["signing"]
    if key is None or key["certificate"] is None:
        return (
            f"install {_needed(node)}, create a key with `{_creation(node)}`, and run again for "
            "the next step"
        )
    if key["state"] == "requested":
        return f"confirm the key {key['certificate']}: {_AT_THE_CONSOLE}"
    unknown = f" (its state is unknown: {key['error']})" if key["error"] else ""
    path = shlex.quote(key["certificate"]) if is_path(key["certificate"]) else "FILE"
    return (
        f"enrol the key of DKMS{unknown}: run `mokutil --import {path}`, set a "
        f"one-time password, {_AT_THE_CONSOLE}"
    )


def _needed(node: Node) -> str:
    """Return the packages that create the key of DKMS, sign with it and enrol it."""
    names = "dkms, openssl, mokutil"
    if node["os"]["id"] == "ubuntu":  # it has update-secureboot-policy
        return f"{names} and shim-signed"
    return " and ".join(names.rsplit(", ", 1))


def _creation(node: Node) -> str:
    """Return the command that creates the key of DKMS."""
    system = node["os"]
    if system["id"] == "ubuntu":
        return "update-secureboot-policy --new-key"
    is_old = (system["id"], system["version_id"]) == ("debian", "12")
    return _BY_OPENSSL if is_old else "dkms generate_mok"
