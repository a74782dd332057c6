# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A repository as a role wants it, and as a node has it: a .sources file of apt, a .repo of dnf.

No function does I/O.
"""

from __future__ import annotations

import configparser
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin

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
    from collections.abc import Iterator, Mapping

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
            wishes["repository_suite"] or source.suite,
            source.components,
            wishes["repository_key"] or urljoin(f"{url.rstrip('/')}/", source.key),
            wishes["repository_fingerprint"] or source.fingerprint,
            source.signs,
            "" if source.suite else KEY_FILE.format(name),
        )


def repository_gap(node: Mapping[str, Any], wanted: Repository) -> str | None:
    """Return why the repository has to be written, or None where it is as wanted.

    A source of somebody else's with the same address serves as well and stays alone: a second one
    with another key would make apt refuse both.
    """
    sources = node["repositories"]
    release = (node["os"]["version_id"] or "").partition(".")[0]
    address = _address(wanted.url, release)
    if any(
        address in {_address(url, release) for url in urls(source)}
        for name, source in sources.items()
        if name != wanted.name
    ):
        return None
    path = FILES[node["os"]["family"]].format(wanted.name)
    found = sources.get(wanted.name)
    if found is None:
        return f"{path} does not exist"
    if is_redhat(node):
        have = {"enabled": "1", **next(iter(parse_ini(found["text"]).values()), {})}
        key = found["key"]
    else:
        have = {"enabled": "yes", **parse_deb822(found["text"])}
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


def urls(source: Mapping[str, Any]) -> Iterator[str]:
    """Yield the addresses that a file of somebody's has in force, in whichever form it is."""
    if source["path"].endswith(".list"):
        words = (line.partition("#")[0].split() for line in source["text"].splitlines())
        yield from (word for line in words for word in line if "://" in word)
    elif source["path"].endswith(".repo"):
        for section in sections_in_force(source):
            yield from section.get("baseurl", "").split()
    else:
        fields = parse_deb822(source["text"])
        if fields.get("enabled", "yes").lower() not in ("no", "false", "0", "off"):
            yield from fields.get("uris", "").split()


def sections_in_force(source: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what a .repo file has enabled; where it comes from may be a list of mirrors."""
    sections = parse_ini(source["text"]).values()
    return [one for one in sections if one.get("enabled", "1") not in ("0", "no", "false")]


def _address(url: str, release: str) -> str:
    for variable, value in (
        ("$(ARCH)", "amd64"),
        ("$basearch", "x86_64"),
        ("$releasever", release),
    ):
        url = url.replace(variable, value)
    return url.rstrip("/")


def parse_deb822(text: str) -> dict[str, str]:
    """Parse the first stanza of a .sources file: values keyed by lower-case field name.

    Continuation lines are joined; a line of one full stop stands for an empty one.
    """
    fields: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                break
        elif line[0] in " \t":
            word = line.strip()
            fields[name] += "\n" + ("" if word == "." else word)
        else:
            name, _colon, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
    return fields


def parse_ini(text: str) -> dict[str, dict[str, str]]:
    """Parse a .repo file: fields keyed by section; what is no such file has no sections."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    return {name: dict(parser[name]) for name in parser.sections()}
