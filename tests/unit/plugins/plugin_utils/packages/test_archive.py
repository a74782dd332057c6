# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which components of the distribution's archive do the sources of a node have?"""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe.package_sources import parse_sources
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import archive
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import SYSTEMS
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    VIRGIN,
)

DEBIAN = next(one for one in SYSTEMS if one.name == "Debian 12")
COMPONENTS = ("contrib", "non-free", "non-free-firmware")
OURS = "/etc/apt/sources.list.d/metal-gpu-nvidia-driver.sources"
THEIRS = "/etc/apt/sources.list"


KEYS = "/usr/share/keyrings"


def node(*lines: str, path: str = THEIRS) -> dict[str, Any]:
    return {**VIRGIN, "package_sources": [*parse_sources(path, "\n".join(lines))]}


@pytest.mark.parametrize(
    ("lines", "lacking"),
    [
        pytest.param([], ["contrib", "non-free", "non-free-firmware"], id="no source"),
        pytest.param(
            [
                "deb http://deb.debian.org/debian bookworm main non-free-firmware",
                "deb http://deb.debian.org/debian bookworm-updates main non-free-firmware",
            ],
            ["contrib", "non-free"],
            id="of an installation",
        ),
        pytest.param(
            [
                "deb http://x.example/debian bookworm main",
                "deb http://x.example/debian bookworm contrib non-free non-free-firmware",
                "deb http://x.example/debian bookworm-updates main",
            ],
            [],
            id="in two lines",
        ),
        pytest.param(
            [
                "deb http://x.example/debian bookworm main",
                "deb http://x.example/debian bookworm-updates main",
                "deb http://multimedia.example bookworm main non-free contrib non-free-firmware",
            ],
            ["contrib", "non-free", "non-free-firmware"],
            id="of another archive",
        ),
        pytest.param(
            ["deb http://x.example/debian sid main contrib non-free non-free-firmware"],
            ["contrib", "non-free", "non-free-firmware"],
            id="of another suite",
        ),
    ],
)
def test_components_that_are_missing(lines: list[str], lacking: list[str]) -> None:
    assert archive.lacking(node(*lines), DEBIAN, COMPONENTS, OURS) == lacking


def test_our_own_file_does_not_count() -> None:
    line = "deb http://x.example/debian bookworm main contrib non-free non-free-firmware"
    assert archive.lacking(node(line, path=OURS), DEBIAN, COMPONENTS, OURS) == [*COMPONENTS]


@pytest.mark.parametrize(
    ("lines", "url", "signed_by"),
    [
        pytest.param(
            [
                "deb https://download.docker.com/linux/debian bookworm stable",
                "deb http://other.example/apt bookworm main",
                "deb [signed-by=/k.gpg] http://mirror.example/debian bookworm main",
                "deb [signed-by=/k.gpg] http://mirror.example/debian bookworm-updates main",
            ],
            "http://mirror.example/debian",
            "/k.gpg",
            id="a mirror",
        ),
        pytest.param(
            [
                f"deb [signed-by={KEYS}/tailscale-archive-keyring.gpg] "
                "https://pkgs.tailscale.com/stable/debian bookworm main",
                f"deb [signed-by={KEYS}/debian-archive-keyring.gpg] "
                "http://deb.debian.org/debian bookworm main",
            ],
            "http://deb.debian.org/debian",
            f"{KEYS}/debian-archive-keyring.gpg",
            id="Tailscale first",
        ),
        pytest.param(
            [
                "deb https://repo.zabbix.com/zabbix/7.0/debian bookworm main",
                "deb http://deb.debian.org/debian bookworm main",
                "deb http://deb.debian.org/debian bookworm-updates main",
            ],
            "http://deb.debian.org/debian",
            "",
            id="Zabbix first, and an old form",
        ),
        pytest.param(
            [
                f"deb [signed-by={KEYS}/hashicorp-archive-keyring.gpg] "
                "https://apt.releases.hashicorp.com bookworm main",
                f"deb [signed-by={KEYS}/debian-archive-keyring.pgp] "
                "mirror+file:///etc/apt/mirrors/debian.list bookworm main",
            ],
            "mirror+file:///etc/apt/mirrors/debian.list",
            f"{KEYS}/debian-archive-keyring.pgp",
            id="cloud image",
        ),
        pytest.param(
            [
                "deb http://proxy.example/stable bookworm main",
                "deb http://proxy.example/stable bookworm-security main",
            ],
            "http://proxy.example/stable",
            "",
            id="every key, and another address",
        ),
    ],
)
def test_our_file_has_the_address_and_the_key_of_the_admins(
    lines: list[str], url: str, signed_by: str
) -> None:
    found = archive.own(node(*lines), DEBIAN)
    assert not isinstance(found, archive.Unclear)
    ours = archive.repository(
        "metal-gpu-nvidia-driver", found, archive.suites(DEBIAN), ["contrib", "non-free"]
    )
    assert (ours.url, ours.suite, ours.components) == (url, "bookworm", "contrib non-free")
    assert ours.signed_by == signed_by


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("https://me:secret@x.example/debian", "credentials"),
        ("http://x.example/debian", None),
    ],
)
def test_what_cannot_be_copied(url: str, word: str | None) -> None:
    text = f"deb {url} bookworm main\ndeb {url} bookworm-updates main"
    own = archive.own(node(text), DEBIAN)
    assert not isinstance(own, archive.Unclear)
    found = archive.problem(own)
    assert (found is None) if word is None else (found is not None and word in found)


def test_a_key_in_the_file_cannot_be_copied() -> None:
    stanza = "Types: deb\nURIs: http://x/debian\nSuites: bookworm bookworm-updates\n"
    stanza += "Components: main\nSigned-By:\n -----BEGIN\n x\n"
    found = {**VIRGIN, "package_sources": [*parse_sources("/x.sources", stanza)]}
    own = archive.own(found, DEBIAN)
    assert not isinstance(own, archive.Unclear)
    assert "key itself" in (archive.problem(own) or "")


@pytest.mark.parametrize(
    "urls",
    [
        (),
        ("https://pkgs.tailscale.com/stable/debian",),
        ("http://proxy.example/a", "http://proxy.example/b"),
    ],
)
def test_archive_that_nothing_shows(urls: tuple[str, ...]) -> None:
    """A guess could add a driver's components to the source of another vendor."""
    found = node(*(f"deb {one} bookworm main" for one in urls))
    assert archive.own(found, DEBIAN) == archive.Unclear(urls)
    assert archive.lacking(found, DEBIAN, COMPONENTS, OURS) == [*COMPONENTS]
