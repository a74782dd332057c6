# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse /proc/version, the banner of the running kernel.

Source: linux_proc_banner in init/version-timestamp.c of Linux: release, (who built it), (compiler)
"""

from __future__ import annotations

import re

# A program such as "x86_64-linux-gnu-gcc-12" and its version: "(gcc-12 (Debian 12.2.0-14) 12.2.0".
_COMPILER = re.compile(r"\((?:\w+-linux-gnu-)?(?P<name>(?:gcc|clang)(?:-\d+)?) ")


def parse_compiler(text: str) -> str | None:
    """Return the program that compiled the kernel, such as "gcc-12"; None if it is unknown."""
    match = _COMPILER.search(text)
    return match["name"] if match else None
