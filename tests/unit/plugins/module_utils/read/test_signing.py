# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import signing

KEY = "/var/lib/dkms/mok.pub"
RECORD = yaml.safe_load((Path(__file__).parents[4] / "recorded" / "dkms.yml").read_text())


@pytest.mark.parametrize(
    ("printed", "state"),
    [
        *((f"{KEY} {row['printed']}\n", row["state"]) for row in RECORD["test_key"]),
        (f"{KEY} is already in the built-in trusted keyring\n", "enrolled"),
        ("EFI variables are not supported on this system\n", "unknown"),
        ("", "unknown"),
    ],
)
def test_what_mokutil_says(printed: str, state: str) -> None:
    assert signing.parse_state(printed) == state


@pytest.mark.parametrize("system", ["debian", "rhel", "ubuntu"])
def test_where_the_certificate_is(system: str) -> None:
    paths = [row["path"] for row in RECORD["certificates"] if system in row["systems"]]
    assert signing.certificate(system) == paths[0]


@pytest.mark.parametrize(
    ("texts", "path"),
    [
        ([], None),
        (["# mok_certificate=/x\n"], None),
        (['mok_certificate="/a"\n', "mok_certificate=/b\n"], "/b"),
        (["mok_certificate=/root/mine.der # ours\n"], "/root/mine.der"),
        (["  export mok_certificate=/root/mine.der;\n"], "/root/mine.der"),
        (['mok_certificate="/root/my keys/mine.der"\n'], "/root/my keys/mine.der"),
        (["mok_certificate='/root/my keys/$x.der'  # ours\n"], "/root/my keys/$x.der"),
        (["mok_certificate=/a\nmok_certificate=\n"], None),
        (["mok_certificate=/a\n", "mok_certificate=$x/b\n"], "mok_certificate=$x/b"),
        (["mok_certificate=$x/b\n", "mok_certificate=/a\n"], "/a"),
        (['mok_certificate="$x/b"\n'], 'mok_certificate="$x/b"'),
        (["mok_certificate=mine.der\n"], "mok_certificate=mine.der"),
        (["[ -e /a ] && mok_certificate=/a\n"], "[ -e /a ] && mok_certificate=/a"),
        (["mok_certificate=/a#b\n"], "mok_certificate=/a#b"),
    ],
)
def test_the_certificate_of_the_settings(texts: list[str], path: str | None) -> None:
    assert signing.parse_certificate(texts) == path
