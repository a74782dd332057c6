# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.pinned_key import (
    KeyRefused,
    armoured,
    fingerprint,
    pinned_key,
)

KEYS = Path(__file__).parents[2] / "fixtures" / "keys"
# As `gpg --show-keys --with-colons` prints them.
FINGERPRINTS = dict(
    line.split() for line in (KEYS / "fingerprints.txt").read_text().splitlines() if line[0] != "#"
)


def packets(text: str) -> bytes:
    lines = text.splitlines()
    return base64.b64decode("".join(lines[2:-2]))


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_fingerprint_is_that_of_gpg(name: str) -> None:
    text = (KEYS / f"{name}.asc").read_text()
    assert fingerprint(text.encode()) == FINGERPRINTS[name]
    assert fingerprint(packets(text)) == FINGERPRINTS[name]
    assert fingerprint(armoured(packets(text)).encode()) == FINGERPRINTS[name]


# RFC 9580, A.3, the sample version 6 certificate.
VERSION_6 = """-----BEGIN PGP PUBLIC KEY BLOCK-----

xioGY4d/4xsAAAAg+U2nu0jWCmHlZ3BqZYfQMxmZu52JGggkLq2EVD34laPCsQYf
GwoAAABCBYJjh3/jAwsJBwUVCg4IDAIWAAKbAwIeCSIhBssYbE8GCaaX5NUt+mxy
KwwfHifBilZwj2Ul7Ce62azJBScJAgcCAAAAAK0oIBA+LX0ifsDm185Ecds2v8lw
gyU2kCcUmKfvBXbAf6rhRYWzuQOwEn7E/aLwIwRaLsdry0+VcallHhSu4RN6HWaE
QsiPlR4zxP/TP7mhfVEe7XWPxtnMUMtf15OyA51YBM4qBmOHf+MZAAAAIIaTJINn
+eUBXbki+PSAld2nhJh/LVmFsS+60WyvXkQ1wpsGGBsKAAAALAWCY4d/4wKbDCIh
BssYbE8GCaaX5NUt+mxyKwwfHifBilZwj2Ul7Ce62azJAAAAAAQBIKbpGG2dWTX8
j+VjFM21J0hqWlEg+bdiojWnKfA5AQpWUWtnNwDEM0g12vYxoWM8Y81W+bHBw805
I8kWVkXU6vFOi+HWvv/ira7ofJu16NnoUkhclkUrk0mXubZvyl4GBg==
-----END PGP PUBLIC KEY BLOCK-----
"""


def test_version_6_key() -> None:
    assert fingerprint(VERSION_6.encode()) == (
        "CB186C4F0609A697E4D52DFA6C722B0C1F1E27C18A56708F6525EC27BAD9ACC9"
    )


def test_blanks_and_case_do_not_matter() -> None:
    text = (KEYS / "rsa.asc").read_text()
    pin = FINGERPRINTS["rsa"].lower()
    assert pinned_key(text.encode(), f"{pin[:20]} {pin[20:]}", "a key").startswith("-----BEGIN")


def test_another_key_is_refused_with_both_fingerprints() -> None:
    key = (KEYS / "rsa.asc").read_bytes()
    with pytest.raises(KeyRefused) as refused:
        pinned_key(key, "AB" * 20, "https://mirror.example/key")
    assert str(refused.value) == (
        f"https://mirror.example/key is the key {FINGERPRINTS['rsa']}, expected was {'AB' * 20}"
    )


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        pytest.param(b"<html>404</html>", "neither armoured nor binary", id="page"),
        pytest.param(b"", "neither armoured nor binary", id="empty"),
        pytest.param(b"\x99", "cut short", id="cut"),
        pytest.param(b"\x99\x00\x05\x04", "cut short", id="cut body"),
        pytest.param(b"\xa8\x03\x50\x47\x50", "packet type 10", id="other packet"),
        pytest.param(b"\x99\x00\x01\x03", "version 3", id="version 3"),
        pytest.param(b"\xc6\xe0\x00", "partial", id="partial"),
        pytest.param(
            b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!!!\n-----END PGP PUBLIC KEY BLOCK-----\n",
            "damaged",
            id="armour",
        ),
    ],
)
def test_what_is_no_key(key: bytes, problem: str) -> None:
    with pytest.raises(KeyRefused, match=problem):
        pinned_key(key, "0" * 40, "it")
