# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which SSH servers are of no Linux machine? No function does I/O.

Only what the identification string says for certain: an unknown server may be one of Linux.

Source: tests/recorded/ssh_banners.yml; RFC 4253, section 4.2
"""

from __future__ import annotations

import re

_SOFTWARE = re.compile(r"SSH-[0-9.]+-(?P<software>.*)")
_DEVICES = (
    ("openssh_for_windows", "Windows"),
    ("cisco-", "a network device of Cisco"),
    ("comware-", "a network device with Comware"),
    ("huawei-", "a network device of Huawei"),
    ("rosssh", "a router of MikroTik"),
    ("mpssh", "a management controller of HPE"),
    ("romsshell", "a device with RomSShell"),
)


def parse_identification(lines: bytes) -> str | None:
    """Return the identification string of a server; lines of a banner may precede it."""
    for line in lines.split(b"\n"):
        if line.startswith(b"SSH-"):
            text = line.rstrip(b"\r").decode("ascii", "replace")
            return "".join(sign if sign.isprintable() else "?" for sign in text)[:255]
    return None


def other_system(identification: str) -> str | None:
    """Return what the server is a part of, if that is no Linux machine."""
    match = _SOFTWARE.fullmatch(identification)
    software = match["software"].lower() if match else ""
    return next((what for start, what in _DEVICES if software.startswith(start)), None)
