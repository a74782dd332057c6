# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A repository as a role wants it, and as a node has it: a .sources file of apt, a .repo of dnf.

No function does I/O.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin

from ansible_collections.metal.gpu.plugins.module_utils.package_sources import (
    UNSIGNED_OPTIONS,
    is_on,
    parse_deb822,
    parse_ini_strictly,
    unsigned_fields,
    without_credentials,
)
from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact
from ansible_collections.metal.gpu.plugins.plugin_utils.pinned_key import KeyRefused, pinned_key
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
    from datetime import datetime

# Where the files are on a node, by family and name.
FILES = {DEBIAN: "/etc/apt/sources.list.d/{}.sources", REDHAT: "/etc/yum.repos.d/{}.repo"}
KEY_FILE = "/etc/pki/rpm-gpg/RPM-GPG-KEY-{}"
MANAGED = ", managed by Ansible"  # behind the name of a .repo file's section, as the role writes it

_ADDRESSES = ("uris", "baseurl")
# What of a file is compared, and with that carried along; others, such as password, are not.
_CARRIED = (
    *("x-repolib-name", "types", *_ADDRESSES, "suites", "components", "enabled", "signed-by"),
    *("section", "name", "gpgcheck", "repo_gpgcheck", "gpgkey", *UNSIGNED_OPTIONS),
)
_CREDENTIALS = re.compile(r"://(?P<credentials>[^\s/?#]*)@(?P<host>[^\s/?#@]*)")
_ROUNDS = 20_000


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
    def desired(cls, name: str, desired: Mapping[str, Any], source: Source) -> Repository:
        """Return the repository of a role's desired; what they leave empty is upstream's."""
        url = desired["repository_url"] or source.url
        return cls(
            name,
            url,
            source.suite and (desired["repository_suite"] or source.suite),
            source.components,
            desired["repository_key"] or urljoin(f"{url.rstrip('/')}/", source.key),
            desired["repository_fingerprint"] or source.fingerprint,
            source.signs,
            "" if source.suite else KEY_FILE.format(name),
        )


class Found(NamedTuple):
    """What the file of a repository has, as an observation carries it: nothing secret."""

    path: str
    entries: list[dict[str, str]]  # stanzas, or sections with their name as "section"
    key: str | None  # for dnf, of the file beside it; apt has it in the entry
    error: str | None  # why the file cannot be read

    @classmethod
    def parse(cls, path: str, text: str, key: str | None) -> Found:
        """Return what a .sources, .list or .repo file has."""
        entries: list[dict[str, str]] = []
        error = None
        if path.endswith(".sources"):
            entries = parse_deb822(text)
        elif path.endswith(".repo"):
            try:
                sections = parse_ini_strictly(text)
            except ValueError as problem:
                sections, error = {}, redact(str(problem))
            entries = [{"section": name, **section} for name, section in sections.items()]
        return cls(path, [_without_secrets(entry) for entry in entries], key, error)


def _without_secrets(entry: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in entry.items() if name in _CARRIED}
    return {
        name: " ".join(map(sealed, value.split())) if name in _ADDRESSES else value
        for name, value in kept.items()
    }


def sealed(url: str) -> str:
    """Return an address with a seal in the place of its credentials.

    A mirror's password may change, so that addresses have to be compared with it; and whoever sees
    an observation must not see it. The seal is slow to guess from, and alike for alike credentials
    of one host.
    """

    def seal(match: re.Match[str]) -> str:
        host = match["host"].encode()
        digest = hashlib.pbkdf2_hmac("sha256", match["credentials"].encode(), host, _ROUNDS)
        return f"://sealed-{digest.hex()[:16]}@{match['host']}"

    found = _CREDENTIALS.sub(seal, url)
    return found if found != url else redact(url)


def is_ours(node: Mapping[str, Any], name: str) -> bool:
    """Whether this collection has written the file of a repository: its path, and its mark."""
    found = node["repositories"].get(name)
    return found is not None and found["path"] == _path(node, name) and _is_marked(found, name)


def _is_marked(found: Mapping[str, Any], name: str) -> bool:
    marks = {"x-repolib-name": name, "name": f"{name}{MANAGED}"}
    return any(
        entry.get(field) == mark for entry in found["entries"] for field, mark in marks.items()
    )


def is_enabled(found: Mapping[str, Any]) -> bool:
    """Whether a .repo file has anything in force."""
    return any(is_on(entry.get("enabled", "1")) for entry in found["entries"])


def _path(node: Mapping[str, Any], name: str) -> str:
    return FILES[node["os"]["family"]].format(name)


def file_problem(node: Mapping[str, Any], name: str) -> str | None:
    """Return why the file of a repository must not be written over, or None where it may be."""
    found = node["repositories"].get(name)
    if found is None or found["path"] != _path(node, name):
        return None
    if found["error"]:
        return str(found["error"])
    if len(found["entries"]) > 1:
        return f"it has {len(found['entries'])} entries, and this collection writes one"
    if found["entries"] and not _is_marked(found, name):
        return "this collection did not write it"
    return None


def unsigned_sources(node: Mapping[str, Any], wanted: Repository) -> dict[str, str]:
    """Return what switches the check of signatures off for the address, keyed by file.

    Our own entry aside, which is written anew.
    """
    own = [(_path(node, wanted.name), section) for section in ("", wanted.name)]
    return {
        source["path"]: source["unsigned"]
        for source in _sources_of(node, wanted.url, wanted.suite)
        if source["unsigned"] and (source["path"], source["section"]) not in own
    }


def repository_gap(node: Mapping[str, Any], wanted: Repository, now: datetime) -> str | None:
    """Return why the repository has to be written, or None where it is as wanted.

    A source of the admin's with the same address serves as well and stays alone: a second one with
    another key would make apt refuse all of its sources.
    """
    path, for_rpm = _path(node, wanted.name), is_redhat(node)
    if {*files_with(node, wanted.url, wanted.suite)} - {path}:
        return None
    found = node["repositories"].get(wanted.name)
    if found is None or found["path"] != path:
        return f"{path} does not exist"
    have: Mapping[str, str] = next(iter(found["entries"]), {})
    for field, value in fields(wanted, for_rpm).items():
        default = value if field.lower() == "enabled" else ""
        written, expected = have.get(field.lower(), default).strip(), sealed(value.strip())
        if redact(written).rstrip("/") != redact(expected).rstrip("/"):
            return f"{path} has {field} {written or 'empty'}, not {expected}"
        if written.rstrip("/") != expected.rstrip("/"):
            return f"{path} has other credentials in {field}"
    if unsigned := unsigned_fields(have):
        return f"{path} has {unsigned}: apt would take unsigned packages"
    try:
        key = found["key"] if for_rpm else have.get("signed-by")
        pinned_key((key or "").encode(), wanted.fingerprint, f"the key in {path}", now)
    except KeyRefused as error:
        return str(error)
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
    return list(dict.fromkeys(source["path"] for source in _sources_of(node, url, suite)))


def _sources_of(node: Mapping[str, Any], url: str, suite: str) -> list[Mapping[str, Any]]:
    release = (node["os"]["version_id"] or "").partition(".")[0]
    wanted = _place(url, suite, release)
    return [
        source
        for source in node["package_sources"]
        if _place(source["url"], source["suite"], release) == wanted
    ]


def _place(url: str, suite: str, release: str) -> tuple[str, str]:
    for variable, value in (
        ("$(ARCH)", "amd64"),
        ("$basearch", "x86_64"),
        ("$releasever", release),
    ):
        url = url.replace(variable, value)
    # A flat repository has the suite "/" or "./".
    return without_credentials(url).rstrip("/"), suite.strip("./")
