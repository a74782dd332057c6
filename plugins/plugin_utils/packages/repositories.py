# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The desired and the observed repository: a .sources file of apt, a .repo file of dnf.

No function does I/O.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypedDict
from urllib.parse import urljoin, urlsplit

from ansible_collections.metal.gpu.plugins.module_utils.probe.package_sources import (
    UNSIGNED_OPTIONS,
    is_on,
    parse_deb822,
    parse_ini_strictly,
    unsigned_fields,
    without_credentials,
)
from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import login
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.pinned_key import (
    KeyRefused,
    pinned_key,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import (
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

    from ansible_collections.metal.gpu.plugins.module_utils.observed.machine import (
        Repository as ObservedFile,
    )
    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.module_utils.probe.package_sources import (
        PackageSource,
    )

# Where the files are on a node, by family and name.
FILES = {DEBIAN: "/etc/apt/sources.list.d/{}.sources", REDHAT: "/etc/yum.repos.d/{}.repo"}
KEY_FILE = "/etc/pki/rpm-gpg/RPM-GPG-KEY-{}"
MANAGED = ", managed by Ansible"  # the role appends it to the name of a .repo file's section

_ADDRESSES = ("uris", "baseurl")
# The fields of a file that are compared, and so observed. Others, such as proxy, are not.
_CARRIED = (
    *("x-repolib-name", "types", *_ADDRESSES, "suites", "components", "enabled", "signed-by"),
    *("section", "name", "gpgcheck", "repo_gpgcheck", "gpgkey", *UNSIGNED_OPTIONS),
)
# What an observation has instead of the user and the password of a .repo file: a seal of both.
_LOGIN = "login"
_ESCAPE = 'write special characters of the user and the password as "%" and their code, # as %23'


class RepositoryVariables(TypedDict):
    """The variables of a role about its repository; upstream's values replace empty ones."""

    repository: bool  # False: the packages come from the sources of the node
    repository_url: str
    repository_suite: str
    repository_key: str
    repository_fingerprint: str


class Repository(NamedTuple):
    """The repository that a role asks for."""

    name: str
    url: str
    suite: str
    components: str  # empty for a flat repository, whose suite is "/"
    key: str  # URL, file on the controller, or the armoured key itself
    fingerprint: str
    signs: str = METADATA
    key_file: str = ""  # on the node, if the package manager needs one
    # The value of Signed-By in the admin's own source of the same archive; None for the pinned key.
    signed_by: str | None = None

    @classmethod
    def desired(cls, name: str, desired: RepositoryVariables, source: Source) -> Repository:
        """Return the repository of a role's variables."""
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


class ObservedRepository(NamedTuple):
    """The content of a repository's file, as in an observation: without secrets."""

    path: str
    entries: list[dict[str, str]]  # stanzas, or sections with their name as "section"
    key: str | None  # for dnf, from the key file; apt has it in the entry
    error: str | None  # why the file cannot be read

    @classmethod
    def parse(cls, path: str, text: str, key: str | None) -> ObservedRepository:
        """Parse a .sources, .list or .repo file."""
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
    shown = {
        name: " ".join(map(login.sealed, value.split())) if name in _ADDRESSES else value
        for name, value in kept.items()
    }
    seal = login.sealed_options(entry)
    return {**shown, _LOGIN: seal} if seal else shown


def url_problem(url: str) -> str | None:
    """Return why an address cannot be used, or None. The text does not quote it.

    With an unescaped character in its password, nothing can tell which part of it is secret.
    """
    try:
        parts = urlsplit(url)
        _port = parts.port  # not a number if it is a part of the password
    except ValueError:
        return _ESCAPE
    return _ESCAPE if parts.fragment or re.search(r"\s", url) else None


def is_ours(node: Node, name: str) -> bool:
    """Whether this collection wrote the file of a repository, by its path and its mark."""
    found = node["repositories"].get(name)
    return found is not None and found["path"] == _path(node, name) and _is_marked(found, name)


def _is_marked(found: ObservedFile, name: str) -> bool:
    return any(_has_mark(entry, name) for entry in found["entries"])


def _has_mark(entry: Mapping[str, str], name: str) -> bool:
    marks = {"x-repolib-name": name, "name": f"{name}{MANAGED}"}
    return any(entry.get(field) == mark for field, mark in marks.items())


def is_enabled(found: ObservedFile, ours: str | None = None) -> bool:
    """Whether the package manager reads an entry of a file, or our own one of that name."""
    return any(
        is_on(entry.get("enabled", "1"))
        for entry in found["entries"]
        if ours is None or _has_mark(entry, ours)
    )


def _path(node: Node, name: str) -> str:
    return FILES[node["os"]["family"]].format(name)


def file_problem(node: Node, name: str) -> str | None:
    """Return why the file of a repository must not be overwritten, or None if it may be."""
    found = node["repositories"].get(name)
    if found is None or found["path"] != _path(node, name):
        return None
    if found["error"]:
        return found["error"]
    if len(found["entries"]) > 1:
        return f"it has {len(found['entries'])} entries, but this collection writes only one"
    if found["entries"] and not _is_marked(found, name):
        return "this collection did not write it"
    return None


def unsigned_sources(node: Node, desired: Repository) -> dict[str, str]:
    """Return the options that disable signature checks for the address, keyed by file.

    Our own entry does not count, because the role rewrites it.
    """
    own = [(_path(node, desired.name), section) for section in ("", desired.name)]
    return {
        source["path"]: source["unsigned"]
        for source in _sources_of(node, desired.url, desired.suite)
        if source["unsigned"] and (source["path"], source["section"]) not in own
    }


def repository_reason(node: Node, desired: Repository, now: datetime) -> str | None:
    """Return why the repository must be written, or None if it is as desired.

    The admin's source with the same address is used instead: apt refuses all of its sources if two
    of them give one address different keys.
    """
    path, for_rpm = _path(node, desired.name), is_redhat(node)
    others = {*files_with(node, desired.url, desired.suite)} - {path}
    if others and desired.signed_by is None:
        return None
    found = node["repositories"].get(desired.name)
    if found is None or found["path"] != path:
        return f"{path} does not exist"
    have: Mapping[str, str] = next(iter(found["entries"]), {})
    wanted = fields(desired, for_rpm)
    if for_rpm and without_credentials(have.get("baseurl", "")) != have.get("baseurl", ""):
        return f"{path} has a login in baseurl, and dnf writes that into a log"
    for field, value in wanted.items():
        if field in login.OPTIONS:
            continue
        default = value if field.lower() == "enabled" else ""
        written, expected = have.get(field.lower(), default).strip(), login.sealed(value.strip())
        if redact(written).rstrip("/") != redact(expected).rstrip("/"):
            return f"{path} has {field} {written or 'empty'}, not {expected}"
        if written.rstrip("/") != expected.rstrip("/"):
            return f"{path} has different credentials in {field}"
    if for_rpm and have.get(_LOGIN, "") != login.sealed_options(wanted):
        return f"{path} has different credentials"
    if unsigned := unsigned_fields(have):
        return f"{path} has {unsigned}: apt would accept unsigned packages"
    if desired.signed_by is not None:
        written = have.get("signed-by", "")
        is_same = written == desired.signed_by
        return None if is_same else f"{path} has another Signed-By than the archive's own source"
    try:
        key = found["key"] if for_rpm else have.get("signed-by")
        pinned_key((key or "").encode(), desired.fingerprint, f"the key in {path}", now)
    except KeyRefused as error:
        return str(error)
    return None


def fields(desired: Repository, for_rpm: bool) -> dict[str, str]:
    """Return the fields of the repository's file in their order, without the key."""
    if for_rpm:
        return {
            **login.of_address(desired.url),
            "enabled": "1",
            "gpgcheck": str(int(desired.signs == PACKAGES)),
            "repo_gpgcheck": str(int(desired.signs == METADATA)),
            "gpgkey": f"file://{desired.key_file}",
        }
    return {
        "Types": "deb",
        "URIs": desired.url,
        "Suites": desired.suite,
        "Components": desired.components,
        "Enabled": "yes",
    }


def files_with(node: Node, url: str, suite: str) -> list[str]:
    """Return the files that give the node's package manager an address and suite."""
    return list(dict.fromkeys(source["path"] for source in _sources_of(node, url, suite)))


def _sources_of(node: Node, url: str, suite: str) -> list[PackageSource]:
    release = (node["os"]["version_id"] or "").partition(".")[0]
    desired = [_place(url, one, release) for one in suite.split() or [suite]]
    return [
        source
        for source in node["package_sources"]
        if _place(source["url"], source["suite"], release) in desired
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
