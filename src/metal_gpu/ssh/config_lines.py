# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the lines of ~/.ssh/config and /etc/ssh/ssh_config, with the files that they include.

Source: ssh_config(5) of OpenSSH 9.2 and 10; misc.c of OpenSSH 9.2, for quotes and comments
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from metal_gpu.trust import distrust_file

_KEYWORD = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*?)\s*", re.DOTALL)
# Their value is the rest of the line, for a shell.
_COMMANDS = ("proxycommand", "localcommand", "remotecommand", "knownhostscommand")
_BLANKS = " \t\f\r\n"


class ConfigInvalid(Exception):
    """The configuration of ssh cannot be used; the message says why."""


class Statement(NamedTuple):
    """A line with a keyword."""

    keyword: str  # in lower case
    words: tuple[str, ...]  # of a command, one
    place: str  # how messages name the line


class Include(NamedTuple):
    """The content of included files, in the place of the line that names them."""

    files: tuple[Lines, ...]


Lines = tuple[Statement | Include, ...]


def read(file: Path, *, is_user: bool) -> Lines:
    """Return the lines of a file. Raises OSError, and ConfigInvalid.

    Names of included files are relative to ~/.ssh, or to /etc/ssh for the file of the system.
    """
    base = Path.home() / ".ssh" if is_user else file.parent
    return _read(file, file.stat().st_mtime_ns, base)


@lru_cache(maxsize=8)  # all machines of a run have the same files
def _read(file: Path, _modified: int, base: Path) -> Lines:
    return tuple(_lines(file, base, ()))


def _lines(file: Path, base: Path, above: tuple[Path, ...]) -> Iterator[Statement | Include]:
    # As ssh: the file of the user, and each that is included, but not one that -F names.
    # Source: OpenSSH 9.2, readconf.c, SSHCONF_CHECKPERM
    if (above or file == Path.home() / ".ssh" / "config") and (why := distrust_file(file)):
        raise ConfigInvalid(f"{why}, so ssh would not read it")
    text = file.read_text("utf-8", "replace")
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        one = statement(line, f"{file}, line {number}")
        if one.keyword != "include":
            yield one
            continue
        if file in above:
            raise ConfigInvalid(f"{one.place}: the file includes itself")
        paths = [path for word in one.words for path in _matches(word, base)]
        yield Include(tuple(tuple(_lines(path, base, (*above, file))) for path in paths))


def _matches(pattern: str, base: Path) -> list[Path]:
    """Return the files of a pattern. Folders among them are no error for ssh."""
    found = sorted(glob.glob(os.path.join(base, os.path.expanduser(pattern))))
    return [Path(one) for one in found if not os.path.isdir(one)]


def statement(line: str, place: str) -> Statement:
    """Return a line as ssh understands it. Raises ConfigInvalid."""
    found = _KEYWORD.fullmatch(line)
    if not found:
        raise ConfigInvalid(f"{place}: no value after {line.strip()}")
    keyword = found[1].lower()
    words = (found[2],) if keyword in _COMMANDS else tuple(_words(found[2], place))
    if not words:
        raise ConfigInvalid(f"{place}: no value after {found[1]}")
    return Statement(keyword, words, place)


def _words(text: str, place: str) -> Iterator[str]:
    """Yield the words of a value. Both quotes exist, and # before a word starts a comment."""
    word, quote, left = "", "", iter(text)
    is_word = False
    for sign in left:
        if not is_word and sign == "#":
            return
        if not quote and sign in _BLANKS:
            if is_word:
                yield word
            word, is_word = "", False
            continue
        is_word = True
        if sign == "\\":
            following = next(left, "")
            is_escape = following in ("'", '"', "\\") or (not quote and following == " ")
            word += following if is_escape and following else sign + following
        elif sign == quote:
            quote = ""
        elif not quote and sign in "\"'":
            quote = sign
        else:
            word += sign
    if quote:
        raise ConfigInvalid(f"{place}: the quotation marks have no end: {text}")
    if is_word:
        yield word
