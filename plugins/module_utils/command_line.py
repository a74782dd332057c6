# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find the flags in the words of a service's command line. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.systemd import Word


class Flag(NamedTuple):
    """A flag and where it is written."""

    name: str  # with its dashes
    value: str | None  # None: written without one, as booleans are
    file: str
    variable: str | None  # the environment variable that holds it
    effective: bool  # False: written down, but not in force


def parse_flags(words: Sequence[Word]) -> tuple[Flag, ...]:
    """Parse "--name=value", "--name value" and "--name", in the order of the words.

    Programs in Go take "--feature_gates" for "--feature-gates"; the latter is returned.
    """
    flags = []
    for word, following in zip(words, [*words[1:], None]):
        if not word.text.startswith("-"):
            continue
        name, assigns, value = word.text.partition("=")
        if not assigns and following and not following.text.startswith("-"):
            value = following.text if following.effective is word.effective else ""
        given = value if assigns or value else None
        flags.append(Flag(name.replace("_", "-"), given, word.file, word.variable, word.effective))
    return tuple(flags)


def value_of(flags: Iterable[Flag], *names: str) -> str | None:
    """Return the value in force: the last one on the command line."""
    values = [flag.value for flag in flags if flag.name in names and flag.effective]
    return values[-1] if values else None
