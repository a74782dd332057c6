# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse /etc/os-release.

Source: os-release(5): assignments in the syntax of environment files.
"""

from __future__ import annotations

from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.read.systemd import parse_environment_file

_FAMILIES = {
    "debian": "debian",
    "ubuntu": "debian",
    "rhel": "redhat",
    "fedora": "redhat",
    "centos": "redhat",
    "suse": "suse",
    "opensuse": "suse",
    "sles": "suse",
}


class OsRelease(TypedDict):
    """The operating system; None: missing from the file."""

    id: str | None  # distribution, from `/etc/os-release`
    version_id: str | None
    codename: str | None
    family: str  # `debian`, `redhat`, `suse` or `other`
    name: str | None  # its full name, `PRETTY_NAME`


def parse_os_release(text: str) -> OsRelease:
    values = parse_environment_file(text)
    ids = [values.get("ID", ""), *values.get("ID_LIKE", "").split()]
    return {
        "id": values.get("ID"),
        "version_id": values.get("VERSION_ID"),
        "codename": values.get("VERSION_CODENAME") or None,
        "family": next((_FAMILIES[name] for name in ids if name in _FAMILIES), "other"),
        "name": values.get("PRETTY_NAME"),
    }
