# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The login of a repository: as dnf takes it, and as an observation has it. No function does I/O.

dnf writes addresses into a log that all users can read, and the options `username` and `password`
into none.

Source: dnf.conf(5), section REPO OPTIONS; tests/recorded/mirror_programs.yml.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ansible_collections.metal.gpu.plugins.module_utils.probe.package_sources import (
    without_credentials,
)
from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = ("username", "password")
# In an option, dnf replaces variables and, in some versions, removes backslashes. It also removes
# blanks at both ends, and takes None for nothing.
_CHANGED = re.compile(r"\\|\$[\w{]|\A | \Z|\ANone\Z")
_PRINTABLE = re.compile(r"[ -~]*")
_CANNOT = (
    "dnf needs a user in its login, and takes users and passwords of printable ASCII that have no "
    '"\\", no blank at an end and no "$" before a letter, a digit, "_" or "{", and are not "None". '
    "Percent codes do not change that. Choose another password, or set the role's *_repository to "
    "false and add a .repo file of your own"
)
_CREDENTIALS = re.compile(r"://(?P<credentials>[^\s/?#]*)@(?P<host>[^\s/?#@]*)")
_HOST = re.compile(r"://(?P<host>[^\s/?#]*)")
_ROUNDS = 20_000


def of_address(url: str) -> dict[str, str]:
    """Return the options of dnf for an address: `baseurl`, and the login if the address has one.

    An address has special characters as `%` and their code, and an option has themselves.
    """
    parts = urlsplit(url)
    options = {"baseurl": without_credentials(url)}
    if parts.username:
        options["username"] = unquote(parts.username)
        # Also if it is empty: the section [main] of dnf.conf may have another one.
        options["password"] = unquote(parts.password or "")
    return options


def problem(url: str) -> str | None:
    """Return why dnf cannot take the login of an address, or None. The text does not quote it."""
    parts, options = urlsplit(url), of_address(url)
    values = [options.get(name, "") for name in OPTIONS]
    is_kept = all(_PRINTABLE.fullmatch(value) and not _CHANGED.search(value) for value in values)
    return None if is_kept and (parts.username or not parts.password) else _CANNOT


def sealed(url: str) -> str:
    """Return an address with a seal instead of its credentials.

    A mirror's password may change, so the comparison of addresses must include it. But an
    observation must not show it. The seal is a slow hash. Equal credentials of one host have equal
    seals.
    """

    def seal(match: re.Match[str]) -> str:
        return f"://{_seal(match['credentials'], match['host'])}@{match['host']}"

    found = _CREDENTIALS.sub(seal, url)
    return found if found != url else redact(url)


def sealed_options(options: Mapping[str, str]) -> str:
    """Return the seal of the login in the options of dnf, likewise; empty without a login."""
    user, password = (options.get(name, "") for name in OPTIONS)
    host = _HOST.search(without_credentials(options.get("baseurl", "")))
    return _seal(f"{user}\n{password}", host["host"] if host else "") if user else ""


def _seal(credentials: str, host: str) -> str:
    digest = hashlib.pbkdf2_hmac("sha256", credentials.encode(), host.encode(), _ROUNDS)
    return f"sealed-{digest.hex()[:16]}"
