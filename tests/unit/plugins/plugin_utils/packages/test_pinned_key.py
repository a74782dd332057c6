# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import random
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.pinned_key import (
    KeyRefused,
    pinned_key,
)

KEYS = Path(__file__).parents[3] / "fixtures" / "keys"
# As `gpg --show-keys --with-colons` prints them.
FINGERPRINTS = dict(
    line.split() for line in (KEYS / "fingerprints.txt").read_text().splitlines() if line[0] != "#"
)
NOW = datetime(2026, 11, 22, tzinfo=UTC)
GOOD = ("rsa", "ed25519", "genuine", "prolonged")


def armour(name: str) -> bytes:
    return (KEYS / f"{name}.asc").read_bytes()


def packets(name: str) -> bytes:
    lines = armour(name).decode().splitlines()
    return base64.b64decode("".join(lines[2:-2]))


def accepted(key: bytes, name: str, now: datetime = NOW) -> bytes:
    """Return the packets of what is written, where the key with this pin is accepted."""
    text = pinned_key(key, FINGERPRINTS[name], "it", now)
    begin, _empty, *body, _checksum, end = text.splitlines()
    assert (begin[:10], end[:8]) == ("-----BEGIN", "-----END")
    return base64.b64decode("".join(body))


def refused(key: bytes, name: str = "genuine", now: datetime = NOW) -> str:
    with pytest.raises(KeyRefused) as error:
        pinned_key(key, FINGERPRINTS[name], "it", now)
    return str(error.value)


@pytest.mark.parametrize("name", GOOD)
def test_key_of_gpg_is_accepted_and_written_as_it_is(name: str) -> None:
    assert accepted(armour(name), name) == packets(name)
    assert accepted(packets(name), name) == packets(name)
    assert accepted(armour(name).replace(b"\n", b"\r\n"), name) == packets(name)
    assert accepted(b"\xef\xbb\xbf" + armour(name), name) == packets(name)


@pytest.mark.parametrize("name", GOOD)
def test_checksum_of_the_armour_is_the_one_of_gpg(name: str) -> None:
    """rpm and dnf accept no key without it."""
    text = pinned_key(armour(name), FINGERPRINTS[name], "it", NOW)
    assert text.splitlines()[-2] == armour(name).decode().splitlines()[-2]


# RFC 9580, A.3, the sample version 6 certificate.
VERSION_6 = b"""-----BEGIN PGP PUBLIC KEY BLOCK-----

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
PIN_6 = "CB186C4F0609A697E4D52DFA6C722B0C1F1E27C18A56708F6525EC27BAD9ACC9"


def test_version_6_key() -> None:
    assert pinned_key(VERSION_6, PIN_6, "it", NOW).startswith("-----BEGIN PGP PUBLIC KEY BLOCK")


def test_blanks_and_case_do_not_matter() -> None:
    pin = FINGERPRINTS["rsa"].lower()
    assert pinned_key(armour("rsa"), f"{pin[:20]} {pin[20:]}", "a key", NOW)


def test_another_key_is_refused_with_both_fingerprints() -> None:
    with pytest.raises(KeyRefused) as error:
        pinned_key(armour("rsa"), "AB" * 20, "https://mirror.example/key", NOW)
    assert str(error.value) == (
        f"https://mirror.example/key is the key {FINGERPRINTS['rsa']}, expected {'AB' * 20}"
    )


# --- more than the pinned key ------------------------------------------------------------------

GENUINE, STRANGER = packets("genuine"), packets("stranger")
BEGIN, END = b"-----BEGIN PGP PUBLIC KEY BLOCK-----", b"-----END PGP PUBLIC KEY BLOCK-----"


def old_packet(tag: int, body: bytes) -> bytes:
    return bytes([0x80 | tag << 2 | 1]) + len(body).to_bytes(2, "big") + body


def new_packet(tag: int, body: bytes) -> bytes:
    return bytes([0xC0 | tag, 255]) + len(body).to_bytes(4, "big") + body


UNBOUND = f"{FINGERPRINTS['genuine']} did not bind its subkey"
SECOND = f"a second primary key, {FINGERPRINTS['stranger']}"


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        pytest.param(GENUINE + STRANGER, SECOND, id="a stranger's behind it"),
        pytest.param(GENUINE[:53] + STRANGER + GENUINE[53:], SECOND, id="a stranger's in it"),
        pytest.param(
            BEGIN + b"\n\n" + base64.b64encode(GENUINE + STRANGER) + b"\n" + END,
            SECOND,
            id="a stranger's behind it, armoured",
        ),
        pytest.param(armour("genuine") + armour("stranger"), "2 armoured blocks", id="two blocks"),
        pytest.param(armour("stranger") + armour("genuine"), "2 armoured blocks", id="in front"),
        pytest.param(GENUINE + GENUINE, "a second primary key", id="twice"),
        pytest.param(
            STRANGER + GENUINE, f"a second primary key, {FINGERPRINTS['genuine']}", id="binary"
        ),
        pytest.param(armour("genuine") + b"\x98", "text outside the armoured block", id="tail"),
        pytest.param(b"pub\n" + armour("genuine"), "text outside the armoured", id="head"),
        pytest.param(GENUINE + b"\n", f"no packet starts at byte {len(GENUINE)}", id="garbage"),
        pytest.param(GENUINE + b"\0" * 8, f"no packet starts at byte {len(GENUINE)}", id="zeros"),
        pytest.param(
            GENUINE + old_packet(5, STRANGER[2:53] + b"\0" * 40),
            "a secret key (packet type 5)",
            id="secret key",
        ),
        pytest.param(
            GENUINE + old_packet(14, STRANGER[2:53]) + STRANGER[101:], UNBOUND, id="foreign subkey"
        ),
        pytest.param(
            GENUINE + old_packet(14, STRANGER[2:53]) + STRANGER[53:],
            UNBOUND,
            id="a stranger's primary key as subkey",
        ),
        pytest.param(
            GENUINE[:53] + old_packet(14, STRANGER[2:53]) + GENUINE[53:], UNBOUND, id="in front"
        ),
        pytest.param(
            GENUINE + old_packet(7, b"\x04"), "a secret key (packet type 7)", id="secret subkey"
        ),
        pytest.param(GENUINE + new_packet(11, b"x"), "a packet of type 11", id="literal data"),
        pytest.param(GENUINE + new_packet(8, STRANGER), "a packet of type 8", id="compressed"),
        pytest.param(GENUINE + new_packet(39, b""), "a packet of type 39", id="critical"),
        pytest.param(GENUINE + new_packet(0, b""), "a packet of type 0", id="reserved"),
        pytest.param(
            b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nxA==\n-----END PGP PRIVATE KEY BLOCK-----\n",
            "a PRIVATE KEY BLOCK",
            id="private block",
        ),
    ],
)
def test_only_the_pinned_key_may_be_in_it(key: bytes, problem: str) -> None:
    assert problem in refused(key)
    assert refused(key).startswith("it is not a trustworthy key: ")


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param(new_packet(10, b"PGP"), id="marker"),
        pytest.param(new_packet(21, b"\0" * 9), id="padding"),
        pytest.param(old_packet(12, b"\0\0"), id="trust of a keyring"),
        pytest.param(new_packet(60, STRANGER), id="not critical"),
    ],
)
def test_what_is_no_part_of_a_certificate_is_left_out(extra: bytes) -> None:
    for key in (extra + GENUINE, GENUINE[:53] + extra + GENUINE[53:], GENUINE + extra):
        assert accepted(key, "genuine") == GENUINE


def test_certificate_cut_at_any_byte() -> None:
    """Where a signature ends, what is before it is a certificate of the pinned key, too."""
    whole = [size for size in range(len(GENUINE)) if not _is_refused(GENUINE[:size])]
    assert whole == [245]
    assert all(_is_refused(armour("genuine")[:size]) for size in range(len(armour("genuine")) - 2))


def _is_refused(key: bytes) -> bool:
    try:
        accepted(key, "genuine")
    except KeyRefused:
        return True
    return False


def test_damaged_certificates_are_refused_or_are_the_pinned_key() -> None:
    """Never another error, and never another key."""
    for seed in range(3000):
        chance = random.Random(seed)
        key = bytearray(chance.choice((GENUINE, GENUINE + STRANGER, armour("genuine"))))
        for _ in range(chance.randrange(1, 5)):
            place = chance.randrange(len(key))
            key[place : place + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        try:
            written = accepted(bytes(key), "genuine")
        except KeyRefused:
            continue
        assert written[:53] == GENUINE[:53], seed
        assert STRANGER[2:53] not in written, seed


# --- a pinned key that is no good any more ------------------------------------------------------


def test_revoked_key() -> None:
    assert refused(armour("revoked"), "revoked") == (
        f"it is the key {FINGERPRINTS['revoked']}, which was revoked on 2026-03-01: lost with a "
        "laptop"
    )


def test_expired_key() -> None:
    message = f"it is the key {FINGERPRINTS['expired']}, which expired on 2021-01-01"
    assert refused(armour("expired"), "expired") == message
    assert accepted(armour("expired"), "expired", datetime(2020, 12, 31, 23, 59, tzinfo=UTC))
    assert refused(armour("expired"), "expired", datetime(2021, 1, 1, tzinfo=UTC)) == message


def test_the_newest_self_signature_says_when_a_key_expires() -> None:
    """The other one is older, and in front of it."""
    expired = datetime(2041, 1, 1, tzinfo=UTC)
    assert "expired on 2040-12-13" in refused(armour("prolonged"), "prolonged", expired)


def test_of_another_key_nothing_but_its_fingerprint_is_said() -> None:
    assert "expected" in refused(armour("revoked"))
    assert "expected" in refused(armour("expired"))


def test_signatures_of_others_do_not_prolong() -> None:
    """As they are in keys that people have signed; made of prolonged, whose issuer is changed."""
    key = packets("prolonged")
    own, other = bytes.fromhex(FINGERPRINTS["expired"]), bytes.fromhex(FINGERPRINTS["stranger"])
    second = key[251:].replace(own, other).replace(own[-8:], other[-8:])
    assert "expired on 2021-01-01" in refused(key[:251] + second, "expired")


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        pytest.param(b"<html>404</html>", "neither armoured nor binary", id="page"),
        pytest.param(b"", "neither armoured nor binary", id="empty"),
        pytest.param(b"\x99", "cut short", id="cut"),
        pytest.param(b"\x99\x00\x05\x04", "cut short", id="cut body"),
        pytest.param(b"\xa8\x03\x50\x47\x50", "contains no public key", id="marker only"),
        pytest.param(GENUINE[53:], "starts with packet type 13", id="no primary key"),
        pytest.param(GENUINE[245:], "starts with packet type 14", id="subkey only"),
        pytest.param(b"\x99\x00\x01\x03", "version 3", id="version 3"),
        pytest.param(b"\xc6\xe0\x00", "partial", id="partial"),
        pytest.param(b"\x9b\x00\x00", "indeterminate", id="indeterminate"),
        pytest.param(GENUINE[:53], "its last packet is not a signature", id="bare"),
        pytest.param(
            GENUINE[:53] + old_packet(2, b"\x04\x13\x16\x08\xff\xff"), "damaged", id="signature"
        ),
        pytest.param(BEGIN + b"\n\n!!!\n" + END + b"\n", "damaged", id="armour"),
        pytest.param(BEGIN + b"\n\nmD\xc3\xa4E\n" + END, "damaged", id="armour, not ASCII"),
        pytest.param(
            GENUINE[:53]
            + old_packet(2, b"\x04\x13\x16\x08\0\x0b\x0a\x09" + b"\xff" * 9 + b"\0" * 4),
            "no self-signature",
            id="endless time",
        ),
        pytest.param(BEGIN + b"\n\nQQ==QQ==\n" + END, "damaged", id="armour in two parts"),
        pytest.param(BEGIN + b"\n\nmDME\n", "has no END line", id="armour without end"),
        pytest.param(END + b"\n" + BEGIN, "has no END line", id="armour upside down"),
    ],
)
def test_what_is_no_key(key: bytes, problem: str) -> None:
    assert problem in refused(key)


# --- what gpgv, which apt asks, makes of it ----------------------------------------------------


def gpgv(keyring: bytes, signer: str, directory: Path) -> bool:
    """Tell whether gpgv takes the signature of release.txt, trusting this keyring."""
    program = shutil.which("gpgv")
    if program is None:
        pytest.fail("this test needs gpgv: apt-get install gpgv")
    (directory / "keyring.gpg").write_bytes(keyring)
    signature = base64.b64decode(
        "".join((KEYS / f"release.{signer}.sig").read_text().splitlines()[2:-2])
    )
    (directory / "signature").write_bytes(signature)
    words = ("--homedir", str(directory), "--keyring", str(directory / "keyring.gpg"))
    files = (str(directory / "signature"), str(KEYS / "release.txt"))
    done = subprocess.run((program, *words, *files), capture_output=True, check=False)
    return done.returncode == 0


def test_gpgv_trusts_every_key_of_a_keyring_and_only_the_pinned_one_is_written(
    tmp_path: Path,
) -> None:
    foreign = GENUINE + old_packet(14, STRANGER[2:53]) + STRANGER[101:]
    assert not gpgv(foreign, "stranger", tmp_path), "gpgv verifies bindings itself"
    both = GENUINE + STRANGER
    assert gpgv(both, "stranger", tmp_path), "else there would be nothing to refuse"
    assert SECOND in refused(both)
    written = accepted(GENUINE, "genuine")
    assert gpgv(written, "genuine", tmp_path)
    assert not gpgv(written, "stranger", tmp_path)
