# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What a login shell and sudo print when they refuse a user, and why. No function does I/O.

Source: tests/recorded/symptoms.yml
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Final

CODES: Final = {
    "This account is currently not available.": "LOGIN_SHELL_MISSING",
    "sudo: sorry, you must have a tty to run sudo": "SUDO_NEEDS_TERMINAL",
}


class Refusal(NamedTuple):
    """Why a user cannot run commands."""

    code: str  # of the finding
    words: str


def find(text: str) -> Refusal | None:
    """Return the first refusal in a text, or None."""
    found = [(place, words) for words in CODES if (place := text.find(words)) >= 0]
    if not found:
        return None
    _place, words = min(found)
    return Refusal(CODES[words], words)
