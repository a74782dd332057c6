# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""mokutil, and the keys that the firmware trusts.

Words and exit codes are those of recorded/dkms.yml. A key is known by the checksum of its
certificate.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

from .state import Machine, Node

DISTRIBUTION = "distribution"  # in place of a checksum: the key that every kernel of it trusts
KEY = "/var/lib/dkms/mok.pub"
_PRIVATE = "/var/lib/dkms/mok.key"


def signer(module: Path) -> str | None:
    """The key that signed a text module."""
    match = re.search(r"^signer=(\w+)$", module.read_text(), re.MULTILINE)
    return match[1] if match else None


def trusts(machine: Machine, module: Path) -> bool:
    """Whether the firmware trusts the key that signed a text module."""
    return signer(module) in (*machine.keys("enrolled"), DISTRIBUTION)


def of_dkms(node: Node) -> str:
    """The key of DKMS. If there is none, it is created as DKMS does it."""
    certificate = node.path(KEY)
    if not certificate.exists():
        certificate.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                *("openssl", "req", "-new", "-x509", "-nodes", "-days", "36500"),
                *("-subj", "/CN=DKMS module signing key", "-newkey", "rsa:2048"),
                *("-keyout", str(node.path(_PRIVATE)), "-outform", "DER", "-out", str(certificate)),
            ],
            check=True,
            capture_output=True,
        )
    return _checksum(certificate)


def mokutil(node: Node, machine: Machine, arguments: list[str]) -> int:
    if machine.secure_boot is None:
        print("EFI variables are not supported on this system", file=sys.stderr)
        return 1
    if arguments == ["--sb-state"]:
        print(f"SecureBoot {'enabled' if machine.secure_boot else 'disabled'}")
        return 0
    if len(arguments) != 2 or arguments[0] not in ("--test-key", "--import"):
        sys.exit("the laboratory's mokutil knows --sb-state, --test-key FILE and --import FILE")
    path = arguments[1]
    if not node.path(path).exists():
        print(f"{path} not found", file=sys.stderr)
        return 1
    key = _checksum(node.path(path))
    if key in machine.keys("enrolled"):
        print(f"{path} is already enrolled")
        return 1
    if key in machine.keys("requested"):
        print(f"{path} is already in the enrollment request")
        return 1
    if arguments[0] == "--test-key":
        print(f"{path} is not enrolled")
        return 0
    # The real one asks for the password twice, at a terminal.
    first, second = (line.rstrip("\n") for line in (sys.stdin.readline(), sys.stdin.readline()))
    if not first or first != second:
        print("password doesn't match", file=sys.stderr)
        return 1
    machine.keys("requested").append(key)
    machine.save()
    return 0


def _checksum(certificate: Path) -> str:
    return hashlib.sha256(certificate.read_bytes()).hexdigest()
