# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Does the firmware of a node trust the key with which DKMS signs modules? No I/O.

The exit code of `mokutil --test-key` says little: it is 1 for an enrolled key and for a requested
one, and old versions use 0 for both. So its words count.

Source: output of mokutil in reports; DKMS's README, "Module signing"
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Settings of DKMS: the certificate can have any path.
SETTINGS = ("/etc/dkms/framework.conf", "/etc/dkms/framework.conf.d/*.conf")
_OF_DKMS = "/var/lib/dkms/mok.pub"
_OF_UBUNTU = "/var/lib/shim-signed/mok/MOK.der"  # by update-secureboot-policy
_VARIABLES = "/sys/firmware/efi/efivars/SecureBoot-"
_FLAG = 4  # an EFI variable starts with four bytes of attributes

_CERTIFICATE = re.compile(r"^[ \t]*mok_certificate=(?P<path>\S+)[ \t]*$", re.MULTILINE)
# "… is already enrolled", "… is already in db", "… is already in the built-in trusted keyring"
_ENROLLED = re.compile(r" is already (?:enrolled|in db\b|in the \S*(?: \S+)? ?keyring)")
_REQUESTED = " is already in the enrollment request"
_MISSING = " is not enrolled"

State = Literal["enrolled", "requested", "missing", "unknown"]


class Signing(TypedDict):
    """The key that signs the modules of DKMS, on a node with Secure Boot."""

    certificate: str | None  # its path; None: there is no key yet
    state: str  # a State
    error: str | None  # why the state is unknown


def has_secure_boot(texts: Mapping[str, str]) -> bool | None:
    """Return whether Secure Boot is on, from the texts of files; None: the firmware has none."""
    for path, text in texts.items():
        if path.startswith(_VARIABLES):
            return text[_FLAG:] == "\x01"
    return None


def certificates(system: str | None) -> list[str]:
    """Return where the certificate can be if DKMS's settings name none."""
    return [_OF_UBUNTU, _OF_DKMS] if system == "ubuntu" else [_OF_DKMS]


def parse_certificate(settings: Iterable[str]) -> str | None:
    """Return the path of the certificate that DKMS's settings name; the last one counts."""
    found = [
        match["path"].strip("\"'") for text in settings for match in _CERTIFICATE.finditer(text)
    ]
    return found[-1] if found else None


def parse_state(printed: str) -> State:
    """Parse what `mokutil --test-key` prints."""
    if _REQUESTED in printed:
        return "requested"
    if _ENROLLED.search(printed):
        return "enrolled"
    return "missing" if _MISSING in printed else "unknown"
