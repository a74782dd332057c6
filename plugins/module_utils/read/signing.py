# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Does the firmware of a node trust the key with which DKMS signs modules? No I/O.

The exit code of `mokutil --test-key` says little: it is 1 for an enrolled key and for a requested
one, and old versions use 0 for both. So its words count.

Source: output of mokutil in reports; dkms 3.0.10 of Debian 12, 3.0.11 of Ubuntu 24.04 and 3.2.2 of
Debian 13, 2026-11-23
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

# DKMS reads its settings as a shell does. What is more than a path or quotes is not understood.
_LINE = re.compile(r"^[^#\n]*\bmok_certificate\b.*$", re.MULTILINE)
_CERTIFICATE = re.compile(
    r"\s*(?:export\s+)?mok_certificate=(?P<path>[\w./+:@%,=-]*|\"[^\"$`\\]*\"|'[^']*')(?:\s*;|\s+#.*|\s*)"
)
# "… is already enrolled", "… is already in db", "… is already in the built-in trusted keyring"
_ENROLLED = re.compile(r" is already (?:enrolled|in db\b|in the \S*(?: \S+)? ?keyring)")
_REQUESTED = " is already in the enrollment request"
_MISSING = " is not enrolled"

State = Literal["enrolled", "requested", "missing", "unknown"]


class Signing(TypedDict):
    """The key that signs the modules of DKMS, on a node with Secure Boot."""

    # Its path, or the line of the settings if it is not understood; None: there is no key yet.
    certificate: str | None
    state: str  # a State
    error: str | None  # why the state is unknown


def has_secure_boot(texts: Mapping[str, str]) -> bool | None:
    """Return whether Secure Boot is on, from the texts of files; None: the firmware has none."""
    for path, text in texts.items():
        if path.startswith(_VARIABLES):
            return text[_FLAG:] == "\x01"
    return None


def certificate(system: str | None) -> str:
    """Return where the certificate is if DKMS's settings name none.

    On Ubuntu, DKMS never takes its own key: without Ubuntu's, it creates that.
    """
    return _OF_UBUNTU if system == "ubuntu" else _OF_DKMS


def parse_certificate(settings: Iterable[str]) -> str | None:
    """Return the path of the certificate that DKMS's settings name; the last one counts.

    Return the line itself if it is not understood: see `is_path`.
    """
    found = [match[0] for text in settings for match in _LINE.finditer(text)]
    last = found[-1].strip() if found else ""
    match = _CERTIFICATE.fullmatch(last)
    path = match["path"].strip("\"'") if match else ""
    if match and (not path or is_path(path)):
        return path or None
    return last or None


def is_path(certificate: str) -> bool:
    """Return whether this is a path, and not a line of the settings that is not understood."""
    return certificate.startswith("/")


def parse_state(printed: str) -> State:
    """Parse what `mokutil --test-key` prints."""
    if _REQUESTED in printed:
        return "requested"
    if _ENROLLED.search(printed):
        return "enrolled"
    return "missing" if _MISSING in printed else "unknown"
