# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Is this the pinned signing key, and only this key?

A repository's key is fetched from the same place as its packages, so only a fingerprint from
another source proves whose key it is. apt and rpm trust *every* key of a keyring. So all of its
packets are checked, and only one certificate is accepted, whose primary key has the fingerprint.

This needs no OpenPGP library: a fingerprint is a hash over a packet. Signatures are not verified
here, so a subkey only has to come with a binding that names the primary key. The package manager
verifies both, and ignores a subkey or a date that the primary key did not sign. rpm does so since
its mend of CVE-2021-3521. No function does I/O.

Source: RFC 9580, sections 4.2 (packets), 5.2.3 (signatures and their subpackets), 5.5.4
(fingerprints), 6.1.1 (checksum of an armour), 6.2 (armour), 10.1 (transferable public keys)
"""

from __future__ import annotations

import base64
import hashlib
import re
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

_BEGIN = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
_END = "-----END PGP PUBLIC KEY BLOCK-----"
_BORDER = re.compile(r"-----(?:BEGIN|END) PGP (?P<kind>[A-Z ]+)-----")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# Types of packets.
_SIGNATURE = 2
_PRIMARY_KEY = 6
_SUBKEY = 14
_PART_OF_CERTIFICATE = (_SIGNATURE, _PRIMARY_KEY, _SUBKEY, 13, 17)  # user ID, user attribute
_SECRET_KEYS = (5, 7)
# Marker, trust (which GnuPG keeps in its keyrings), padding: not part of a certificate.
_NOTHING = (10, 12, 21)
_FIRST_NOT_CRITICAL = 40

# Types of signatures, and of their subpackets.
_REVOCATION, _BINDING = 0x20, 0x18
_SELF_SIGNATURES = (0x10, 0x11, 0x12, 0x13, 0x1F)
_CREATED, _EXPIRES_AFTER, _ISSUER, _REASON, _ISSUER_FINGERPRINT = 2, 9, 16, 29, 33


class KeyRefused(ValueError):
    """The text is not exactly the pinned public key, or that key was revoked or has expired."""


class _Packet(NamedTuple):
    tag: int
    body: bytes
    raw: bytes  # header included


class _Signature(NamedTuple):
    kind: int
    issuer: bytes  # a key ID or a fingerprint; empty if it names none
    created: int  # in seconds of the epoch
    expires_after: int  # of the key, in seconds after its creation; 0 for never
    reason: str  # of a revocation


def pinned_key(key: bytes, expected: str, source: str, now: datetime) -> str:
    """Return the armoured certificate whose primary key has the expected fingerprint.

    `key` is binary or armoured, and has no other certificate. `source` names its origin in
    messages. Raises KeyRefused.
    """
    pinned = re.sub(r"\s", "", expected).upper()
    try:
        packets = _certificate(_binary(key))
        found = _fingerprint(packets[0].body)
        signatures = [_signature(one.body) for one in packets if one.tag == _SIGNATURE]
    except KeyRefused as error:
        raise KeyRefused(f"{source} is not a trustworthy key: {error}") from error
    if found != pinned:
        raise KeyRefused(f"{source} is the key {found}, expected {pinned}")
    if _has_foreign_subkey(packets, found):
        raise KeyRefused(f"{source} is not a trustworthy key: {found} did not bind its subkey")
    if problem := _problem(packets[0].body, found, signatures, now):
        raise KeyRefused(f"{source} is the key {found}, which {problem}")
    data = b"".join(packet.raw for packet in packets)
    body = textwrap.wrap(base64.b64encode(data).decode(), 64)
    # The standard no longer asks for the checksum. Without it, dnf and rpm ignore the key.
    checksum = base64.b64encode(_crc24(data).to_bytes(3, "big")).decode()
    return "\n".join((_BEGIN, "", *body, f"={checksum}", _END, ""))


def _crc24(data: bytes) -> int:
    crc = 0xB704CE
    for byte in data:
        crc ^= byte << 16
        for _bit in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= 0x1864CFB
    return crc


def _binary(key: bytes) -> bytes:
    """Return the packets of a key that may be armoured."""
    key = key.removeprefix(_BYTE_ORDER_MARK)
    if key[:1] and key[0] & 0x80:  # every packet starts with this bit; no text does
        return key
    lines = [line.strip() for line in key.decode("utf-8", errors="replace").strip().split("\n")]
    borders = [match for line in lines if (match := _BORDER.fullmatch(line))]
    if not borders:
        raise KeyRefused("not an OpenPGP public key, neither armoured nor binary")
    if borders[0]["kind"] != "PUBLIC KEY BLOCK":
        raise KeyRefused(f"not an OpenPGP public key, but a {borders[0]['kind']}")
    blocks = lines.count(_BEGIN)
    if blocks > 1:
        raise KeyRefused(f"{blocks} armoured blocks, expected one")
    if _END not in lines or (_BEGIN in lines and lines.index(_END) < lines.index(_BEGIN)):
        raise KeyRefused("the armoured OpenPGP key has no END line")
    if (lines[0], lines[-1], len(borders)) != (_BEGIN, _END, 2):
        raise KeyRefused("text outside the armoured block")
    # Headers such as "Version:" come first. The checksum, which starts with "=", comes last.
    body = [line for line in lines[1:-1] if ":" not in line and not line.startswith("=")]
    try:
        return base64.b64decode("".join(body), validate=True)
    except ValueError as error:  # also for text that is not ASCII
        raise KeyRefused(f"the armoured OpenPGP key is damaged: {error}") from error


def _certificate(data: bytes) -> list[_Packet]:
    """Return the packets of the only certificate; the first one is its primary key."""
    packets: list[_Packet] = []
    for packet in _packets(data):
        if packet.tag in _NOTHING or packet.tag >= _FIRST_NOT_CRITICAL:
            continue
        if packet.tag in _SECRET_KEYS:
            raise KeyRefused(f"it contains a secret key (packet type {packet.tag})")
        if packet.tag not in _PART_OF_CERTIFICATE:
            raise KeyRefused(
                f"it contains a packet of type {packet.tag}, which is not part of a key"
            )
        if not packets and packet.tag != _PRIMARY_KEY:
            raise KeyRefused(f"not an OpenPGP public key: it starts with packet type {packet.tag}")
        if packets and packet.tag == _PRIMARY_KEY:
            raise KeyRefused(f"it contains a second primary key, {_fingerprint(packet.body)}")
        packets.append(packet)
    if not packets:
        raise KeyRefused("not an OpenPGP public key: it contains no public key")
    _fingerprint(packets[0].body)  # raises for an unsupported version
    if packets[-1].tag != _SIGNATURE:
        raise KeyRefused("the OpenPGP key is cut short: its last packet is not a signature")
    return packets


def _packets(data: bytes) -> Iterator[_Packet]:
    start = 0
    while start < len(data):
        header = data[start]
        if not header & 0x80:
            raise KeyRefused(f"no packet starts at byte {start}, so it contains more than a key")
        try:
            tag, body, end = _body(data, start)
        except IndexError as error:
            raise KeyRefused("the OpenPGP key is cut short") from error
        if end > len(data):
            raise KeyRefused("the OpenPGP key is cut short")
        yield _Packet(tag, data[body:end], data[start:end])
        start = end


def _body(data: bytes, start: int) -> tuple[int, int, int]:
    """Return a packet's type, and the start and end of its body. Raises IndexError, KeyRefused."""
    header = data[start]
    if header & 0x40:  # the current format
        first = data[start + 1]
        if 224 <= first < 255:
            raise KeyRefused("an OpenPGP public key has no partial lengths")
        length, body = _length(data, start + 1)
        return header & 0x3F, body, body + length
    # the format of PGP 2, which GnuPG still writes
    width = 1 << (header & 0x03)
    if width == 8:
        raise KeyRefused("an OpenPGP public key has no indeterminate length")
    body = start + 1 + width
    data[body - 1]
    return (header & 0x3C) >> 2, body, body + int.from_bytes(data[start + 1 : body], "big")


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return a length of one, two or five bytes, and the index after it. Raises IndexError."""
    first = data[at]
    if first < 192:
        return first, at + 1
    if first < 255:
        return ((first - 192) << 8) + data[at + 1] + 192, at + 2
    data[at + 4]
    return int.from_bytes(data[at + 1 : at + 5], "big"), at + 5


def _fingerprint(body: bytes) -> str:
    """Return the fingerprint of a public key, in capital hexadecimal digits."""
    version = body[0] if body else None
    if version == 4:
        # RFC 9580 defines the fingerprint of a version 4 key as SHA-1.
        material = b"\x99" + len(body).to_bytes(2, "big") + body
        return hashlib.sha1(material, usedforsecurity=False).hexdigest().upper()
    if version == 6:
        material = b"\x9b" + len(body).to_bytes(4, "big") + body
        return hashlib.sha256(material).hexdigest().upper()
    raise KeyRefused(f"OpenPGP keys of version {version} are not supported")


def _issuers(fingerprint: str) -> tuple[bytes, bytes]:
    """Return how signatures name the key that made them."""
    key_id = fingerprint[-16:] if len(fingerprint) == 40 else fingerprint[:16]
    return bytes.fromhex(fingerprint), bytes.fromhex(key_id)


def _has_foreign_subkey(packets: list[_Packet], fingerprint: str) -> bool:
    """Tell whether a subkey has no binding of the primary key among the signatures behind it."""
    is_bound = False
    for packet in reversed(packets):
        if packet.tag == _SIGNATURE:
            one = _signature(packet.body)
            is_bound |= one.kind == _BINDING and one.issuer.endswith(_issuers(fingerprint))
            continue
        if packet.tag == _SUBKEY and not is_bound:
            return True
        is_bound = False
    return False


def _problem(
    primary: bytes, fingerprint: str, signatures: list[_Signature], now: datetime
) -> str | None:
    """Return whether the key was revoked or has expired, as text, or None."""
    revocation = next((one for one in signatures if one.kind == _REVOCATION), None)
    if revocation:
        reason = f": {revocation.reason}" if revocation.reason else ""
        return f"was revoked on {_date(revocation.created):%Y-%m-%d}{reason}"
    issuers = _issuers(fingerprint)
    own = [
        one for one in signatures if one.kind in _SELF_SIGNATURES and one.issuer.endswith(issuers)
    ]
    if not own:
        return "has no self-signature"
    newest = max(own, key=lambda one: (one.created, one.expires_after or float("inf")))
    created = int.from_bytes(primary[1:5], "big")
    expires = _date(created) + timedelta(seconds=newest.expires_after)
    if newest.expires_after and expires <= now:
        return f"expired on {expires:%Y-%m-%d}"
    return None


def _date(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _signature(body: bytes) -> _Signature:
    """Parse the parts of a signature that decide whether a key is valid. Raises KeyRefused."""
    try:
        version = body[0]
        if version == 3:
            return _Signature(body[2], body[7:15], int.from_bytes(body[3:7], "big"), 0, "")
        width = 4 if version == 6 else 2
        middle = 4 + width + int.from_bytes(body[4 : 4 + width], "big")
        end = middle + width + int.from_bytes(body[middle : middle + width], "big")
        body[end - 1]
        hashed = _subpackets(body[4 + width : middle])
        # The issuer only helps to find the key, and is often outside the signed part.
        found = {**_subpackets(body[middle + width : end]), **hashed}
        return _Signature(
            kind=body[1],
            issuer=found.get(_ISSUER_FINGERPRINT, found.get(_ISSUER, b"")),
            created=int.from_bytes(hashed.get(_CREATED, b"")[:4], "big"),
            expires_after=int.from_bytes(hashed.get(_EXPIRES_AFTER, b"")[:4], "big"),
            reason=hashed.get(_REASON, b"")[1:].decode("utf-8", errors="replace"),
        )
    except IndexError as error:
        raise KeyRefused("a signature in the OpenPGP key is damaged") from error


def _subpackets(data: bytes) -> dict[int, bytes]:
    """Return the contents of subpackets, keyed by type. Raises IndexError."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        length, at = _length(data, at)
        if length == 0 or at + length > len(data):
            raise IndexError(length)
        found[data[at] & 0x7F] = data[at + 1 : at + length]
        at += length
    return found
