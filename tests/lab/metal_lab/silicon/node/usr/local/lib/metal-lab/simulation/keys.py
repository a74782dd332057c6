# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""mokutil: does the firmware trust the key with which DKMS signs modules?

Words and exit codes are those of recorded/dkms.yml.
"""

from __future__ import annotations

import sys

from .state import Machine, Node

KEY = "/var/lib/dkms/mok.pub"


def mokutil(node: Node, machine: Machine, arguments: list[str]) -> int:
    if machine.secure_boot is None:
        print("EFI variables are not supported on this system", file=sys.stderr)
        return 1
    if arguments == ["--sb-state"]:
        print(f"SecureBoot {'enabled' if machine.secure_boot else 'disabled'}")
        return 0
    if len(arguments) != 2 or arguments[0] != "--test-key":
        sys.exit("the laboratory's mokutil knows --sb-state and --test-key FILE")
    path = arguments[1]
    if not node.path(path).exists():
        print(f"{path} not found", file=sys.stderr)
        return 1
    is_enrolled = machine.trusts_dkms and path == KEY
    print(f"{path} is {'already' if is_enrolled else 'not'} enrolled")
    return 1 if is_enrolled else 0
