# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every function that nvml.h declares, as weak C functions that answer NVML_ERROR_NOT_SUPPORTED.

Callers such as go-nvml bind lazily: a function that is missing ends them with "undefined symbol".
"""

from __future__ import annotations

import re

NOT_SUPPORTED = 3


def parse_functions(header: str) -> list[str]:
    """Names of all functions declared in nvml.h, in order, each once."""
    declared = re.findall(r"\bDECLDIR\s+(?:char\s*\*\s*)?(nvml\w+)\s*\(", header)
    return list(dict.fromkeys(declared))


def weak_functions(names: list[str]) -> str:
    """C source that defines them; what nvml.c defines itself wins over these."""
    return '#pragma GCC diagnostic ignored "-Wmissing-prototypes"\n' + "".join(
        f'__attribute__((weak, visibility("default"))) int {name}(void) '
        f"{{ return {NOT_SUPPORTED}; }}\n"
        for name in names
    )
