# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Data as plain Python types, whatever Ansible has made of them.

Ansible marks texts that come from nodes by subclasses of `str`. Before ansible-core 2.19, libyaml
refuses these: it takes no subclass. Later, containers fill in their templates only when asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Return a copy that has no marks."""
    if isinstance(value, str):
        return str.__str__(value)  # its own `__str__` may return the marked text
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
