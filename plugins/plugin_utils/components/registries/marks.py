# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare values that can be secrets, without showing them.

A plain hash of a short password can be guessed, and observations are printed. So the hash has a key
that nobody sees. Ansible loads the plan's action plugin once, before it forks, so all processes of
a run have the same key.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeGuard

from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import canonical

_KEY = secrets.token_bytes(32)

Key = tuple[str, ...]


def mark(value: object) -> str:
    """Return what two equal values share during a run."""
    return hmac.new(_KEY, canonical(value).encode(), "sha256").hexdigest()


def marks(values: Iterable[object]) -> list[str]:
    return [mark(value) for value in values]


def leaves(table: Mapping[str, object], path: Key = ()) -> Iterator[tuple[Key, object]]:
    """Yield the values of a document that are no tables, by key path."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*path, str(key)))
        else:
            yield (*path, str(key)), value


def is_plain_list(value: object) -> TypeGuard[list[object]]:
    """Tell whether a value is a list without tables and lists, so that items can be added."""
    return isinstance(value, list) and not any(isinstance(one, (Mapping, list)) for one in value)


def key_text(key: Key) -> str:
    """Return a key path for people. A key of the admin can be an address with a password."""
    return redact(" > ".join(key))
