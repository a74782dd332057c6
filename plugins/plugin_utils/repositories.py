# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A repository as a role wants it, and as a node has it: a .sources file of apt, a .repo of dnf.

No function does I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin

from ansible_collections.metal.gpu.plugins.module_utils.package_sources import (
    parse_deb822,
    parse_ini,
    without_credentials,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.pinned_key import KeyRefused, fingerprint
from ansible_collections.metal.gpu.plugins.plugin_utils.systems import (
    DEBIAN,
    METADATA,
    PACKAGES,
    REDHAT,
    Source,
    is_redhat,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

# Where the files are on a node, by family and name.
FILES = {DEBIAN: "/etc/apt/sources.list.d/{}.sources", REDHAT: "/etc/yum.repos.d/{}.repo"}
KEY_FILE = "/etc/pki/rpm-gpg/RPM-GPG-KEY-{}"


class Repository(NamedTuple):
    """A repository as a role wants it."""

    name: str
    url: str
    suite: str
    components: str  # empty for a flat repository, whose suite is "/"
    key: str  # URL, file on the controller, or the armoured key itself
    fingerprint: str
    signs: str = METADATA
    key_file: str = ""  # on the node, where the package manager wants one

    @classmethod
    def wished(cls, name: str, wishes: Mapping[str, Any], source: Source) -> Repository:
        """Return the repository of a role's wishes; what they leave empty is upstream's."""
        url = wishes["repository_url"] or source.url
        return cls(
            name,
            url,
            source.suite and (wishes["repository_suite"] or source.suite),
            source.components,
            wishes["repository_key"] or urljoin(f"{url.rstrip('/')}/", source.key),
            wishes["repository_fingerprint"] or source.fingerprint,
            source.signs,
            "" if source.suite else KEY_FILE.format(name),
        )


def repository_gap(node: Mapping[str, Any], wanted: Repository) -> str | None:
    """Return why the repository has to be written, or None where it is as wanted.

    A source of somebody else's with the same address serves as well and stays alone: a second one
    with another key would make apt refuse all of its sources.
    """
    path = FILES[node["os"]["family"]].format(wanted.name)
    if {*files_with(node, wanted.url, wanted.suite)} - {path}:
        return None
    found = node["repositories"].get(wanted.name)
    if found is None:
        return f"{path} does not exist"
    if is_redhat(node):
        have = {"enabled": "1", **next(iter(parse_ini(found["text"]).values()), {})}
        key = found["key"]
    else:
        have = {"enabled": "yes", **next(iter(parse_deb822(found["text"])), {})}
        key = have.get("signed-by")
    for field, value in fields(wanted, is_redhat(node)).items():
        written = have.get(field.lower(), "").strip().rstrip("/")
        if written != value.strip().rstrip("/"):
            return f"{found['path']} has {field} {written or 'empty'}, not {value}"
    try:
        trusted = fingerprint((key or "").encode())
    except KeyRefused as error:
        return f"{found['path']} holds no usable key: {error}"
    if trusted != "".join(wanted.fingerprint.split()).upper():
        return f"{found['path']} trusts the key {trusted}, not {wanted.fingerprint}"
    return None


def fields(wanted: Repository, for_rpm: bool) -> dict[str, str]:
    """Return what the repository's file says, the key aside; fields in the order of the file."""
    if for_rpm:
        return {
            "baseurl": wanted.url,
            "enabled": "1",
            "gpgcheck": str(int(wanted.signs == PACKAGES)),
            "repo_gpgcheck": str(int(wanted.signs == METADATA)),
            "gpgkey": f"file://{wanted.key_file}",
        }
    return {
        "Types": "deb",
        "URIs": wanted.url,
        "Suites": wanted.suite,
        "Components": wanted.components,
        "Enabled": "yes",
    }


def files_with(node: Mapping[str, Any], url: str, suite: str) -> list[str]:
    """Return the files from which the node's package manager knows an address and suite."""
    release = (node["os"]["version_id"] or "").partition(".")[0]
    wanted = _place(url, suite, release)
    found = [
        source["path"]
        for source in node["package_sources"]
        if _place(source["url"], source["suite"], release) == wanted
    ]
    return list(dict.fromkeys(found))


def _place(url: str, suite: str, release: str) -> tuple[str, str]:
    for variable, value in (
        ("$(ARCH)", "amd64"),
        ("$basearch", "x86_64"),
        ("$releasever", release),
    ):
        url = url.replace(variable, value)
    # A flat repository has the suite "/" or "./".
    return without_credentials(url).rstrip("/"), suite.strip("./")
