# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Is this the signing key that was meant?

A repository's key is fetched from the same place as its packages, so only a fingerprint that came
another way says whose key it is. That takes no OpenPGP library: the fingerprint is a hash over
the first packet. No function does I/O.

Source: https://www.rfc-editor.org/rfc/rfc9580.html#name-key-ids-and-fingerprints
Source: https://www.rfc-editor.org/rfc/rfc9580.html#name-converting-from-binary-to-r
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import textwrap

_BEGIN = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
_END = "-----END PGP PUBLIC KEY BLOCK-----"
# Armour headers such as "Version:" end at the empty line; the checksum line begins with "=".
_BLOCK = re.compile(
    rf"{_BEGIN}[ \t]*\r?\n(?:[^\r\n]+:.*\r?\n)*\s*(.*?)(?:\n=\S*)?\s*{_END}", re.DOTALL
)

_PUBLIC_KEY_PACKET = 6


class KeyRefused(ValueError):
    """The text is no public key, or it is the key of somebody else."""


def fingerprint(key: bytes) -> str:
    """Return the fingerprint of the primary key, in capital hexadecimal digits.

    `key` is a binary or armoured public key, version 4 or 6. Raises KeyRefused.
    """
    packets = _binary(key)
    try:
        tag, body = _first_packet(packets)
        version = body[0]
    except IndexError as error:
        raise KeyRefused("the OpenPGP key is cut short") from error
    if tag != _PUBLIC_KEY_PACKET:
        raise KeyRefused(f"not an OpenPGP public key: it begins with packet type {tag}")
    if version == 4:
        # SHA-1 is not a choice: it is what the fingerprint of a version 4 key is.
        material = b"\x99" + len(body).to_bytes(2, "big") + body
        return hashlib.sha1(material, usedforsecurity=False).hexdigest().upper()
    if version == 6:
        material = b"\x9b" + len(body).to_bytes(4, "big") + body
        return hashlib.sha256(material).hexdigest().upper()
    raise KeyRefused(f"OpenPGP keys of version {version} are not supported")


def armoured(key: bytes) -> str:
    """Return the key as an armoured block, which is what a .sources file can hold."""
    body = "\n".join(textwrap.wrap(base64.b64encode(_binary(key)).decode(), 64))
    return f"{_BEGIN}\n\n{body}\n{_END}\n"


def pinned_key(key: bytes, expected: str, source: str) -> str:
    """Return the armoured key when its fingerprint is the expected one.

    `source` says in messages where the key came from. Raises KeyRefused.
    """
    wanted = re.sub(r"\s", "", expected).upper()
    try:
        found = fingerprint(key)
    except KeyRefused as error:
        raise KeyRefused(f"{source}: {error}") from error
    if found != wanted:
        raise KeyRefused(f"{source} is the key {found}, expected was {wanted}")
    return armoured(key)


def _binary(key: bytes) -> bytes:
    """Return the packets of a key that may be armoured."""
    if key[:1] and key[0] & 0x80:  # every packet begins with this bit; no text does
        return key
    block = _BLOCK.search(key.decode("utf-8", errors="replace"))
    if block is None:
        raise KeyRefused("not an OpenPGP public key, neither armoured nor binary")
    try:
        return base64.b64decode("".join(block[1].split()), validate=True)
    except binascii.Error as error:
        raise KeyRefused(f"the armoured OpenPGP key is damaged: {error}") from error


def _first_packet(packets: bytes) -> tuple[int, bytes]:
    """Return the type and body of the first packet. Raises IndexError, KeyRefused."""
    header = packets[0]
    if header & 0x40:  # the format of today
        tag, first = header & 0x3F, packets[1]
        if first < 192:
            start, length = 2, first
        elif first < 224:
            start, length = 3, ((first - 192) << 8) + packets[2] + 192
        elif first == 255:
            start, length = 6, int.from_bytes(packets[2:6], "big")
        else:
            raise KeyRefused("an OpenPGP public key has no partial lengths")
    else:  # the format of PGP 2, which GnuPG still writes
        tag, width = (header & 0x3C) >> 2, 1 << (header & 0x03)
        if width == 8:
            raise KeyRefused("an OpenPGP public key has no indeterminate length")
        start, length = 1 + width, int.from_bytes(packets[1 : 1 + width], "big")
    body = packets[start : start + length]
    if len(body) < length:
        raise IndexError(length)
    return tag, body
