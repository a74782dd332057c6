# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe.package_sources import (
    EMBEDDED_KEY,
    parse_deb822,
    parse_ini,
    parse_sources,
    read_sources,
)
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant

STANZAS = """\
# of the distribution
Types: deb deb-src
URIs: http://deb.example/debian http://mirror.example/debian
Suites: bookworm
 bookworm-updates
Components: main

Types: deb
URIs: https://download.docker.com/linux/debian/
Suites: bookworm
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 URIs: https://not.example/

Types: deb-src
URIs: https://src.example/
Suites: /

Types: deb
URIs: https://off.example/
Suites: /
Enabled: Off
"""


def found(path: str, text: str) -> list[tuple[str, str]]:
    return [(source["url"], source["suite"]) for source in parse_sources(path, text)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("deb https://a.example/x bookworm main", ("https://a.example/x", "bookworm")),
        ("\tdeb\t[ arch=amd64 signed-by=/k ]\thttps://a.example/ ./", ("https://a.example/", "./")),
        ("deb [arch=amd64]https://a.example/$(ARCH) / # x", ("https://a.example/$(ARCH)", "/")),
        ("deb https://me:secret@a.example/ / # old", ("https://a.example/", "/")),
        ("deb http://[::1]:80/debian sid main", ("http://[::1]:80/debian", "sid")),
        ("deb-src https://a.example/ sid main", None),
        ("#deb https://a.example/ sid main", None),
        ("deb https://a.example/", None),
        ("", None),
    ],
)
def test_one_line(line: str, expected: tuple[str, str] | None) -> None:
    assert found("/etc/apt/sources.list", f"{line}\n") == [expected] * (expected is not None)


def test_every_stanza() -> None:
    assert found("/etc/apt/sources.list.d/x.sources", STANZAS) == [
        ("http://deb.example/debian", "bookworm"),
        ("http://deb.example/debian", "bookworm-updates"),
        ("http://mirror.example/debian", "bookworm"),
        ("http://mirror.example/debian", "bookworm-updates"),
        ("https://download.docker.com/linux/debian/", "bookworm"),
    ]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        pytest.param(
            "x.list", "deb http://x/ sid main  contrib # c\n", ("main contrib", ""), id="line"
        ),
        pytest.param(
            "x.list", "deb [signed-by=/k.gpg] http://x/ /\n", ("", "/k.gpg"), id="keyring"
        ),
        pytest.param(
            "x.sources",
            "Types: deb\nURIs: http://x/\nSuites: sid\nComponents: main\n contrib\n"
            "Signed-By: /k.gpg\n",
            ("main contrib", "/k.gpg"),
            id="stanza",
        ),
        pytest.param(
            "x.sources",
            "Types: deb\nURIs: http://x/\nSuites: /\nSigned-By:\n -----BEGIN PGP\n .\n x\n",
            ("", EMBEDDED_KEY),
            id="the key itself",
        ),
        pytest.param("x.repo", "[x]\nbaseurl=http://x/\n", ("", ""), id="dnf"),
    ],
)
def test_components_and_keys(path: str, text: str, expected: tuple[str, str]) -> None:
    (source,) = parse_sources(path, text)
    assert (source["components"], source["signed_by"]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# c\nTypes: deb\nURIs: a\n\n\nA: b\n", [{"types": "deb", "uris": "a"}, {"a": "b"}]),
        ("Signed-By:\n a\n .\n b\n", [{"signed-by": "\na\n\nb"}]),
        (" what continues nothing\n", []),
    ],
    ids=["stanzas", "continuation", "no fields"],
)
def test_deb822(text: str, expected: list[dict[str, str]]) -> None:
    assert parse_deb822(text) == expected


def test_sections() -> None:
    text = (
        "[a]\nbaseurl=https://me:secret@a.example/$basearch\n https://b.example/\n"
        "[off]\nbaseurl=https://off.example/\nenabled=False\n"
        "[mirrors]\nmetalink=https://mirrors.example/\n"
    )
    assert found("/etc/yum.repos.d/x.repo", text) == [
        ("https://a.example/$basearch", ""),
        ("https://b.example/", ""),
    ]


def test_what_is_no_repo_file_has_no_sections() -> None:
    assert parse_ini("baseurl = https://nowhere") == {}


def test_all_files_of_both_package_managers(tmp_path):
    places = {
        "/etc/apt/sources.list": "deb https://a.example/ sid main\n",
        "/etc/apt/sources.list.d/archive_uri-https_b_example.list": "deb https://b.example/ /\n",
        "/etc/apt/sources.list.d/c.sources": "Types: deb\nURIs: https://c.example/\nSuites: /\n",
        "/etc/yum.repos.d/d.repo": "[d]\nbaseurl=https://d.example/\n",
    }
    plant(tmp_path, {**places, "/etc/apt/sources.list.d/old.list.save": "deb https://x/ /\n"})
    sources = read_sources(tmp_path)
    assert [source["path"] for source in sources] == list(places)
    assert sources[0] == {
        "path": "/etc/apt/sources.list",
        "url": "https://a.example/",
        "suite": "sid",
        "section": "",
        "components": "main",
        "signed_by": "",
        "unsigned": "",
        "credentials": False,
    }
