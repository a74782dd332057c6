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
def test_where_the_two_files_are(system: str) -> None:
    recorded = [
        next(row["path"] for row in RECORD[kind] if system in row["systems"])
        for kind in ("private_keys", "certificates")
    ]
    assert [*signing.pair(system, [])] == recorded


@pytest.mark.parametrize(
    ("system", "texts", "expected"),
    [
        pytest.param(
            "debian", ["mok_certificate=/c\n"], ("/var/lib/dkms/mok.key", "/c"), id="one of two"
        ),
        pytest.param("debian", ["mok_signing_key=/k\n"], ("/k", KEY), id="the other one"),
        pytest.param(
            "rocky", ["mok_signing_key=/k\n", "mok_certificate=/c\n"], ("/k", "/c"), id="both"
        ),
        pytest.param(
            "ubuntu",
            ["mok_certificate=/c\n"],
            ("/var/lib/shim-signed/mok/MOK.priv", "/var/lib/shim-signed/mok/MOK.der"),
            id="Ubuntu's own, without a private key",
        ),
        pytest.param(
            "ubuntu", ["mok_signing_key=/k\n", "mok_certificate=/c\n"], ("/k", "/c"), id="named"
        ),
        pytest.param("ubuntu", ["mok_signing_key=/k\n"], ("/k", KEY), id="and not Ubuntu's"),
    ],
)
def test_the_two_files_of_the_settings(
    system: str, texts: list[str], expected: tuple[str, str]
) -> None:
    assert signing.pair(system, texts) == expected


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ("mok_signing_key=/k", None),
        ("mok_signing_key=pkcs11:object=k", None),
        ('export mok_signing_key="pkcs11:object=k;type=private"', None),
        ("mok_signing_key='pkcs11:object=k?pin-value=1234'", None),
        ("mok_signing_key=$x/k", "mok_signing_key=$x/k"),
        ("mok_signing_key=mine.key", "mok_signing_key=mine.key"),
        ("mok_signing_key=$x/k\nmok_certificate=/c", "mok_signing_key=$x/k"),
        ("mok_signing_key=/k\nmok_certificate=$x/c", "mok_certificate=$x/c"),
        ("mok_signing_key=pkcs11:object=k\nmok_certificate=c", "mok_certificate=c"),
    ],
)
@pytest.mark.parametrize("system", ["debian", "ubuntu"])
def test_a_line_that_hides_which_pair_signs(system: str, lines: str, line: str | None) -> None:
    assert signing.not_understood(signing.pair(system, [f"{lines}\n"])) == line


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('mok_signing_key="pkcs11:k;pin-value=1234"', 'mok_signing_key="pkcs11:k;…'),
        ("mok_signing_key=pkcs11:k;pin-source=/1234", "mok_signing_key=pkcs11:k;…"),
        ('mok_signing_key="pkcs11:k?PIN-value=1 234" # mine', 'mok_signing_key="pkcs11:k?…'),
        ("MY_PIN=1234; mok_signing_key=$x", "mok_signing_key=$x"),
        ('mok_signing_key="$x;pin-value=1234"', 'mok_signing_key="$x;…'),
    ],
)
def test_a_pin_is_never_shown(line: str, shown: str) -> None:
    assert signing.pair("debian", [f"{line}\n"]).private_key == shown


@pytest.mark.parametrize(
    ("texts", "path"),
    [
        ([], KEY),
        (["# mok_certificate=/x\n"], KEY),
        (['mok_certificate="/a"\n', "mok_certificate=/b\n"], "/b"),
        (["mok_certificate=/root/mine.der # ours\n"], "/root/mine.der"),
        (["  export mok_certificate=/root/mine.der;\n"], "/root/mine.der"),
        (['mok_certificate="/root/my keys/mine.der"\n'], "/root/my keys/mine.der"),
        (["mok_certificate='/root/my keys/$x.der'  # ours\n"], "/root/my keys/$x.der"),
        (["mok_certificate=/a\nmok_certificate=\n"], KEY),
        (["mok_certificate=/a\n", "mok_certificate=$x/b\n"], "mok_certificate=$x/b"),
        (["mok_certificate=$x/b\n", "mok_certificate=/a\n"], "/a"),
        (['mok_certificate="$x/b"\n'], 'mok_certificate="$x/b"'),
        (["mok_certificate=mine.der\n"], "mok_certificate=mine.der"),
        (["[ -e /a ] && mok_certificate=/a\n"], "[ -e /a ] && mok_certificate=/a"),
        (["mok_certificate=/a#b\n"], "mok_certificate=/a#b"),
    ],
)
def test_the_certificate_of_the_settings(texts: list[str], path: str) -> None:
    assert signing.pair("debian", texts).certificate == path
