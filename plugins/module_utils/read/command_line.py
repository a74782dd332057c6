# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse the flags in the words of a service's command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.read.systemd import Word
from ansible_collections.metal.gpu.plugins.module_utils.secrets import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


class Flag(NamedTuple):
    """A flag and where it is written."""

    name: str  # with its dashes
    value: str | None  # None: written without a value, as booleans are
    file: str | None  # None: the program runs with it, but no file contains it
    variable: str | None  # the environment variable that contains it
    effective: bool  # False: written in a file, but not used


def parse_flags(words: Sequence[Word]) -> tuple[Flag, ...]:
    """Parse "--name=value", "--name value" and "--name", in the order of the words.

    Programs in Go read "--feature_gates" as "--feature-gates"; the latter is returned.
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


def parse_words(words: Iterable[str]) -> tuple[Flag, ...]:
    """Parse the words of a process; their file is None."""
    flags = parse_flags([Word(word, "", None, True) for word in words])
    return tuple(flag._replace(file=None) for flag in flags)


def with_places(running: Iterable[Flag], written: Sequence[Flag]) -> tuple[Flag, ...]:
    """Return the flags in the files, and the flags of a process that no file contains."""
    places = [flag for flag in written if flag.effective]
    unplaced = [flag for flag in running if not any(_is_same(flag, place) for place in places)]
    return (*written, *unplaced)


def _is_same(flag: Flag, place: Flag) -> bool:
    """Return whether a flag is the one in a file, where its value may be a variable."""
    value = place.value or ""
    return flag.name == place.name and (flag.value == place.value or "%" in value or "$" in value)


def hide_values(flags: Iterable[Flag], shown: Collection[str]) -> tuple[Flag, ...]:
    """Return the flags; hide the values of those not in `shown`, because they may be secret."""
    return tuple(
        flag._replace(value=HIDDEN) if flag.value and flag.name not in shown else flag
        for flag in flags
    )


def value_of(flags: Iterable[Flag], *names: str) -> str | None:
    """Return the effective value, which is the last one on the command line."""
    values = [flag.value for flag in flags if flag.name in names and flag.effective]
    return values[-1] if values else None
