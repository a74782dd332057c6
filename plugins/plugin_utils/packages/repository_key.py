# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fetch a repository's signing key on the controller, and check its fingerprint.

`read_signing_key` does I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from urllib.error import URLError

from ansible.module_utils.common.text.converters import to_native
from ansible.module_utils.urls import ConnectionError as FetchError
from ansible.module_utils.urls import SSLValidationError, open_url

from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.pinned_key import (
    KeyRefused,
    pinned_key,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import url_problem


class KeyUnavailable(Exception):
    """There is no pinned key under this address. The message has no credentials."""


def read_signing_key(
    key: str, fingerprint: str, find_file: Callable[[str], str | None], now: datetime
) -> str:
    """Return the armoured key that has this fingerprint, and nothing else.

    `key` is a URL, a file on the controller, or the armoured key itself. `find_file` returns the
    path of a file. Raises KeyUnavailable.
    """
    is_key = key.lstrip().startswith("-----BEGIN")
    if not is_key and "://" in key and (problem := url_problem(key)):
        raise KeyUnavailable(f"the URL of the signing key cannot be used: {problem}")
    label = "the given signing key" if is_key else redact(key)
    try:
        return pinned_key(
            key.encode() if is_key else _read(key, find_file), fingerprint, label, now
        )
    except KeyRefused as error:
        raise KeyUnavailable(str(error)) from error


def _read(key: str, find_file: Callable[[str], str | None]) -> bytes:
    if key.startswith(("http://", "https://")):
        return _fetch(key)
    path = find_file(key)
    if path is None:
        raise KeyUnavailable(f"the signing key {key} does not exist on the controller")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise KeyUnavailable(f"cannot read the signing key {path}: {error}") from error


def _fetch(url: str) -> bytes:
    try:
        with open_url(url) as response:
            return bytes(response.read())
    except (URLError, SSLValidationError, FetchError, OSError) as error:
        message = redact(f"cannot fetch the signing key {url}: {to_native(error)}")
        raise KeyUnavailable(message) from None  # the cause would show the credentials
    except (HTTPException, ValueError) as error:
        # Their texts are what the server sent.
        what = (
            "the server ended the connection too early"
            if isinstance(error, IncompleteRead)
            else f"the server's answer is not valid HTTP ({type(error).__name__})"
        )
        message = redact(f"cannot fetch the signing key {url}: {what}")
        raise KeyUnavailable(message) from None
