# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert Ansible's data types to plain Python types.

Ansible marks texts that come from nodes by subclasses of `str`. Before ansible-core 2.19, libyaml
rejects such subclasses, and a text of the inventory that is encrypted by itself (`!vault`) is no
`str` at all. Since 2.19, numbers have marks, too, which YAML does not accept, and containers render
their templates only on access.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Return a copy without marks and encryption."""
    if isinstance(value, str):
        return str.__str__(value)  # its own `__str__` may return the marked text
    if getattr(value, "__ENCRYPTED__", False):
        return str(value)  # it decrypts itself
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
