# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find the addresses that apt and dnf get packages from, and the files that contain them.

`read_sources` does I/O; it takes the root directory as an argument. The files are parsed on the
node, because they can be long.

Source: sources.list(5); dnf.conf(5), sections MAIN OPTIONS and REPO OPTIONS.
"""

from __future__ import annotations

import configparser
import re
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.probe.node_files import NodeFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

DNF_CONF = "/etc/dnf/dnf.conf"
FILES = (
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d/*.list",
    "/etc/apt/sources.list.d/*.sources",
    "/etc/yum.repos.d/*.repo",
)
_ONE_LINE = re.compile(
    r"\s*deb\s+(?:\[(?P<options>[^]]*)\]\s*)?(?P<url>\S+)\s+(?P<suite>\S+)(?P<components>[^#]*)"
)
EMBEDDED_KEY = "embedded"
_OFF = ("no", "false", "without", "off", "disable", "0")
_CREDENTIALS = re.compile(r"(?<=://)[^\s/?#]*@")
# With one of these options, apt accepts packages with a missing or weak signature.
UNSIGNED_OPTIONS = ("trusted", "allow-insecure", "allow-weak", "allow-downgrade-to-insecure")


class PackageSource(TypedDict):
    """An address and suite that packages come from, and the file that contains them."""

    path: str
    url: str  # without credentials; variables are not replaced
    suite: str  # empty for dnf
    section: str  # empty for apt
    components: str  # empty for dnf, and for a flat repository
    signed_by: str  # keyring or fingerprints; `embedded`: a key in the file; empty: any key
    unsigned: str  # the options that disable signature checks
    credentials: bool  # whether the address has credentials


def read_sources(root: Path) -> list[PackageSource]:
    files = NodeFiles(root)
    files.read_all((DNF_CONF, *FILES))
    main = parse_ini(files.texts.pop(DNF_CONF, "")).get("main", {})
    return [
        source for path, text in files.texts.items() for source in parse_sources(path, text, main)
    ]


def parse_sources(
    path: str, text: str, main: Mapping[str, str] | None = None
) -> Iterator[PackageSource]:
    """Yield the enabled sources of a file, without source packages. Its name tells the format.

    `main` is the section [main] of dnf.conf, whose options a repository inherits.
    """
    if path.endswith(".repo"):
        yield from _sections(path, text, main or {})
    elif path.endswith(".sources"):
        for stanza in parse_deb822(text):
            if "deb" in stanza.get("types", "").split() and is_on(stanza.get("enabled", "yes")):
                more = {
                    "unsigned": unsigned_fields(stanza),
                    "components": stanza.get("components", ""),
                    "signed_by": stanza.get("signed-by", ""),
                }
                for url in stanza.get("uris", "").split():
                    for suite in stanza.get("suites", "").split():
                        yield _source(path, url, suite, **more)
    else:
        for line in filter(None, map(_ONE_LINE.match, text.splitlines())):
            pairs = (word.partition("=") for word in (line["options"] or "").split())
            options = {name.lower(): value for name, _equals, value in pairs}
            unsigned = ", ".join(f"[{name}={options[name]}]" for name in _unsigned_options(options))
            yield _source(
                path,
                line["url"],
                line["suite"],
                unsigned=unsigned,
                components=line["components"],
                signed_by=options.get("signed-by", ""),
            )


def unsigned_fields(stanza: Mapping[str, str]) -> str:
    """Return the fields of a stanza that disable signature checks; empty for none."""
    return ", ".join(f"{name.title()}: {stanza[name]}" for name in _unsigned_options(stanza))


def _unsigned_options(options: Mapping[str, str]) -> list[str]:
    return [name for name in UNSIGNED_OPTIONS if any(map(is_on, options.get(name, "").split()))]


def _sections(path: str, text: str, main: Mapping[str, str]) -> Iterator[PackageSource]:
    for name, section in parse_ini(text).items():
        effective = {"gpgcheck": "0", "repo_gpgcheck": "0", **main, **section}
        checks = ("gpgcheck", "repo_gpgcheck")
        unsigned = "" if any(is_on(effective[check]) for check in checks) else "gpgcheck=0"
        if is_on(section.get("enabled", "1")):
            for url in section.get("baseurl", "").split():
                yield _source(path, url, "", section=name, unsigned=unsigned)


def _source(
    path: str,
    url: str,
    suite: str,
    *,
    section: str = "",
    unsigned: str = "",
    components: str = "",
    signed_by: str = "",
) -> PackageSource:
    bare = without_credentials(url)
    return {
        "path": path,
        "url": bare,
        "suite": suite,
        "section": section,
        "components": " ".join(components.split()),
        "signed_by": EMBEDDED_KEY if "\n" in signed_by.strip() else signed_by.strip(),
        "unsigned": unsigned,
        "credentials": bare != url,
    }


def without_credentials(url: str) -> str:
    """Return an address without credentials; apt also compares addresses in this form."""
    return _CREDENTIALS.sub("", url)


def is_on(value: str) -> bool:
    """Return whether apt and dnf read a value as yes."""
    return value.lower() not in _OFF


def parse_deb822(text: str) -> list[dict[str, str]]:
    """Parse the stanzas of a .sources file: values keyed by lower-case field name.

    Continuation lines are joined; a line with one full stop stands for an empty line.
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
            name, value = name.strip().lower(), value.strip()
            # A repeated field gets both values, so that it equals no desired value.
            fields[name] = f"{fields[name]}\n{value}" if name in fields else value
        elif fields:
            word = line.strip()
            fields[name] += "\n" + ("" if word == "." else word)
    return [fields for fields in stanzas if fields]


def parse_ini(text: str) -> dict[str, dict[str, str]]:
    """Parse a .repo file: fields keyed by section. Like dnf, skip a file that is invalid."""
    try:
        return parse_ini_strictly(text, allow_twice=True)
    except ValueError:
        return {}


def parse_ini_strictly(text: str, *, allow_twice: bool = False) -> dict[str, dict[str, str]]:
    """Parse a .repo file: fields keyed by section. Raises ValueError, with the number of the line.

    The line itself can have a password.
    """
    parser = configparser.RawConfigParser(strict=not allow_twice)
    try:
        parser.read_string(text)
    except configparser.MissingSectionHeaderError as error:
        raise ValueError(f"line {error.lineno} comes before the first section") from error
    except configparser.ParsingError as error:
        lines = ", ".join(str(number) for number, _line in error.errors)
        raise ValueError("neither a section nor a field in line " + lines) from error
    except configparser.Error as error:
        raise ValueError(" ".join(str(error).replace("'<string>', ", "").split())) from error
    return {name: dict(parser[name]) for name in parser.sections()}
