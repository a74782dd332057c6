# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Where do apt and dnf get packages from, whoever wrote it down, and in which file?

`read_sources` looks at the node, below a root directory that tests plant. Files of sources can be
long, and are mostly about something else, so that they are parsed here and not carried along.

Source: sources.list(5); dnf.conf(5), section REPO OPTIONS.
"""

from __future__ import annotations

import configparser
import re
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.node_files import NodeFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = (
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d/*.list",
    "/etc/apt/sources.list.d/*.sources",
    "/etc/yum.repos.d/*.repo",
)
_ONE_LINE = re.compile(r"\s*deb\s+(?:\[[^]]*\]\s*)?(?P<url>\S+)\s+(?P<suite>\S+)")
_OFF = ("no", "false", "without", "off", "disable", "0")
_CREDENTIALS = re.compile(r"(?<=://)[^/@]*@")


class PackageSource(NamedTuple):
    """An address and suite that packages come from, and the file that says so."""

    path: str
    url: str
    suite: str  # empty for dnf


def read_sources(root: Path) -> list[PackageSource]:
    files = NodeFiles(root)
    files.read_all(FILES)
    return [source for path, text in files.texts.items() for source in parse_sources(path, text)]


def parse_sources(path: str, text: str) -> Iterator[PackageSource]:
    """Yield what a file has in force, in the form that its name tells; source packages aside."""
    if path.endswith(".repo"):
        pairs = [
            (url, "")
            for section in sections_in_force(text)
            for url in section.get("baseurl", "").split()
        ]
    elif path.endswith(".sources"):
        pairs = [
            (url, suite)
            for stanza in parse_deb822(text)
            if "deb" in stanza.get("types", "").split() and _is_on(stanza.get("enabled", "yes"))
            for url in stanza.get("uris", "").split()
            for suite in stanza.get("suites", "").split()
        ]
    else:
        lines = map(_ONE_LINE.match, text.splitlines())
        pairs = [(line["url"], line["suite"]) for line in lines if line]
    for url, suite in pairs:
        yield PackageSource(path, without_credentials(url), suite)


def without_credentials(url: str) -> str:
    """Return an address as apt compares it, and as anybody may read it."""
    return _CREDENTIALS.sub("", url)


def sections_in_force(text: str) -> list[dict[str, str]]:
    """Return what a .repo file has enabled; where it comes from may be a list of mirrors."""
    return [section for section in parse_ini(text).values() if _is_on(section.get("enabled", "1"))]


def _is_on(value: str) -> bool:
    return value.lower() not in _OFF


def parse_deb822(text: str) -> list[dict[str, str]]:
    """Parse the stanzas of a .sources file: values keyed by lower-case field name.

    Continuation lines are joined; a line of one full stop stands for an empty one.
    """
    stanzas: list[dict[str, str]] = [{}]
    name = ""
    for line in text.splitlines():
        fields = stanzas[-1]
        if line.startswith("#"):
            continue
        if not line.strip():
            stanzas.append({})
        elif line[0] not in " \t":
            name, _colon, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
        elif fields:
            word = line.strip()
            fields[name] += "\n" + ("" if word == "." else word)
    return [fields for fields in stanzas if fields]


def parse_ini(text: str) -> dict[str, dict[str, str]]:
    """Parse a .repo file: fields keyed by section; what is no such file has no sections."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    return {name: dict(parser[name]) for name in parser.sections()}
