# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Does the firmware of a node trust the key with which DKMS signs modules?

DKMS signs with a pair of files: a private key, and its certificate, which the firmware knows. If
one of the two is missing, DKMS creates a new pair at its next build, and nobody has enrolled that.

The exit code of `mokutil --test-key` says little: it is 1 for an enrolled key and for a requested
one, and old versions use 0 for both. So its words count.

Source: output of mokutil in reports; dkms 3.0.10 of Debian 12, 3.0.11 of Ubuntu 24.04 and 3.2.2 of
Debian 13, 2026-11-23; tests/recorded/dkms.yml
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Settings of DKMS: both files can have any path.
SETTINGS = ("/etc/dkms/framework.conf", "/etc/dkms/framework.conf.d/*.conf")
_VARIABLES = "/sys/firmware/efi/efivars/SecureBoot-"
_FLAG = 4  # an EFI variable starts with four bytes of attributes

# DKMS reads its settings as a shell does. What is more than a path or quotes is not understood.
_LINE = r"^[^#\n]*\b{name}\b.*$"
_SETTING = (
    r"\s*(?:export\s+)?{name}=(?P<path>[\w./+:@%,=-]*|\"[^\"$`\\]*\"|'[^']*')(?:\s*;|\s+#.*|\s*)"
)
# A private key in a token, which is no file. DKMS never creates a pair then.
_IN_TOKEN = re.compile(r"(?:export\s+)?mok_signing_key=[\"']?pkcs11:")
# pin-value and pin-source of a token's address, and variables with such a name.
_PIN = re.compile(r"pin[\w-]*=.*", re.IGNORECASE)
# "… is already enrolled", "… is already in db", "… is already in the built-in trusted keyring"
_ENROLLED = re.compile(r" is already (?:enrolled|in db\b|in the \S*(?: \S+)? ?keyring)")
_REQUESTED = " is already in the enrollment request"
_MISSING = " is not enrolled"

State = Literal["enrolled", "requested", "missing", "unknown"]


class Pair(NamedTuple):
    """The two files with which DKMS signs."""

    private_key: str
    certificate: str


_OF_DKMS = Pair("/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub")
# Of update-secureboot-policy.
_OF_UBUNTU = Pair("/var/lib/shim-signed/mok/MOK.priv", "/var/lib/shim-signed/mok/MOK.der")


class Files(TypedDict):
    """Which of the two files are there."""

    private_key: str  # path, or the line of DKMS's settings that is not understood, without a PIN
    # path, or the line of DKMS's settings that is not understood, without a PIN
    certificate: str | None
    # path of the private key, if there is no such file; the next build creates both
    missing_key: str | None
    missing_certificate: str | None  # path of the certificate, if there is no such file


class Signing(Files):
    """The key that signs the modules of DKMS, on a node with Secure Boot."""

    state: str  # `enrolled`, `requested` (confirmed at the next boot), `missing` or `unknown`
    error: str | None  # why the state is unknown


def has_secure_boot(texts: Mapping[str, str]) -> bool | None:
    """Return whether Secure Boot is on, from the texts of files; None: the firmware has none."""
    for path, text in texts.items():
        if path.startswith(_VARIABLES):
            return text[_FLAG:] == "\x01"
    return None


def pair(system: str | None, settings: Iterable[str]) -> Pair:
    """Return the two files, or instead of a path the line of the settings that is not understood.

    On Ubuntu, DKMS takes Ubuntu's two files unless its settings name a private key, and never its
    own.
    """
    texts = list(settings)
    key, certificate = (_setting(texts, f"mok_{name}") for name in ("signing_key", "certificate"))
    if key is None and system == "ubuntu":
        return _OF_UBUNTU
    return Pair(key or _OF_DKMS.private_key, certificate or _OF_DKMS.certificate)


def _setting(texts: Iterable[str], name: str) -> str | None:
    """Return the value of a setting, or its line if that is not understood; the last one counts.

    A line that has a PIN ends before it.
    """
    line = re.compile(_LINE.format(name=name), re.MULTILINE)
    found = [match[0] for text in texts for match in line.finditer(text)]
    last = found[-1].strip() if found else ""
    match = re.fullmatch(_SETTING.format(name=name), last)
    value = match["path"].strip("\"'") if match else ""
    if match and (not value or is_path(value)):
        return value or None
    if _PIN.search(last):
        last = _PIN.sub("…", last[last.index(name) :])
    return last or None


def is_path(found: str) -> bool:
    """Return whether this is a path, and not a line of the settings."""
    return found.startswith("/")


def not_understood(files: Pair) -> str | None:
    """Return the line of the settings, instead of a path, that hides which pair signs."""
    is_known = is_path(files.private_key) or _IN_TOKEN.match(files.private_key)
    line = files.certificate if is_known else files.private_key
    return None if is_path(line) else line


def parse_state(printed: str) -> State:
    """Parse what `mokutil --test-key` prints."""
    if _REQUESTED in printed:
        return "requested"
    if _ENROLLED.search(printed):
        return "enrolled"
    return "missing" if _MISSING in printed else "unknown"
