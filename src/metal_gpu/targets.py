# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read which machines a command line names: addresses, networks, ranges of names, and files.

    10.0.0.7   10.0.0.0/24   host-[1-40]   rack[01-12]-n[1,3]   gpu-1.example   admin@gpu-1:2222
    2001:db8::7   [2001:db8::]/120   [2001:db8::7]:2222   @hosts.txt

A file has targets of the same forms, separated by blanks or lines; `#` starts a comment.
Only `parse` reads files. It reports everything that it cannot use at once.
"""

from __future__ import annotations

import ipaddress
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

# A rack network (/20) fits. A larger one is more often a mistake than a wish.
LIMIT = 4096
PERMISSION = "--max-addresses"

_USER = re.compile(r"(?P<user>[A-Za-z_][\w.-]*\$?)@(?P<rest>.+)", re.ASCII)
_IN_BRACKETS = re.compile(r"\[(?P<address>[0-9A-Fa-f:.]*:[\w:.%]*)\](?P<size>/\d+)?(?P<port>:.*)?")
_PORT = re.compile(r"(?P<rest>[^:]*[^:\[]):(?P<port>[^:\]]*)")
_RANGE = re.compile(r"\[(?P<items>[^\[\]]*)\]")
_ITEM = re.compile(r"(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?", re.ASCII)
# Labels of a host name, as RFC 1123 has them, and the underscore that some names have.
_NAME = re.compile(
    r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?", re.ASCII
)
_MAX_NAME = 253
_LIKE_ADDRESSES = re.compile(r"[\d.-]+", re.ASCII)
_MAX_FILE_BYTES = 4 * 1024 * 1024


class TargetsInvalid(ValueError):
    """Some targets cannot be used; `problems` has a sentence for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Target(NamedTuple):
    """A machine to ask."""

    host: str  # a name or an address
    port: int | None
    user: str | None
    place: str  # where it is named: "argument 2", or "hosts.txt, line 3"
    is_member: bool = False  # it is only an address of a network, and may not exist
    is_of_many: bool = False  # it is only of a network or a range, and may be somebody else's


class _Word(NamedTuple):
    text: str
    place: str


class _Parsed(NamedTuple):
    """The targets of one word: how many there are, and a way to list them."""

    size: int
    hosts: Callable[[], Iterable[str]]
    port: int | None
    user: str | None
    is_member: bool
    is_of_many: bool


class _Problem(ValueError):
    """Why a word cannot be used."""


def parse(words: Sequence[str], limit: int = LIMIT) -> list[Target]:
    """Return the targets in the order of the words, each only once.

    Raises TargetsInvalid with all problems: of words, of files, of too many addresses, and of
    hosts that are named twice in different ways.
    """
    problems: list[str] = []
    targets: dict[tuple[str, int | None], Target] = {}
    free = limit
    for word in _words(words, problems):
        try:
            parsed = _parse(word.text)
        except _Problem as problem:
            problems.append(f"{word.place}: {problem}")
            continue
        if parsed.size > free:
            total = limit - free + parsed.size
            problems.append(
                f"{word.place}: {word.text} has {parsed.size} addresses; with those before it, "
                f"that is {total} of at most {limit}. Name fewer, or permit them: "
                f"{PERMISSION} {total}"
            )
            continue
        free -= parsed.size
        for host in parsed.hosts():
            kind = (parsed.is_member, parsed.is_of_many)
            _add(targets, Target(host, parsed.port, parsed.user, word.place, *kind), problems)
    if problems:
        raise TargetsInvalid(problems)
    return list(targets.values())


def is_address(host: str) -> bool:
    """Tell whether a host is an address and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _add(
    targets: dict[tuple[str, int | None], Target], target: Target, problems: list[str]
) -> None:
    """Add a target; one that is named again adds what the first does not say."""
    key = (target.host.lower().rstrip("."), target.port)
    known = targets.setdefault(key, target)
    users = {user for user in (known.user, target.user) if user}
    if len(users) > 1:
        problems.append(
            f"{target.place}: {target.host} is named with the user {target.user}, and with the "
            f"user {known.user} in {known.place}. Name it once"
        )
    elif known is not target:
        targets[key] = known._replace(
            user=known.user or target.user,
            is_member=known.is_member and target.is_member,
            is_of_many=known.is_of_many and target.is_of_many,
        )


def _words(arguments: Sequence[str], problems: list[str]) -> Iterator[_Word]:
    """Yield the words of the arguments and of the files that they name."""
    for number, argument in enumerate(arguments, 1):
        place = f"argument {number}"
        if not argument.startswith("@"):
            yield _Word(argument, place)
            continue
        path = argument[1:]
        try:
            lines = _read(Path(path)).splitlines()
        except _Problem as problem:
            problems.append(f"{place}: {problem}")
            continue
        found = False
        for line_number, line in enumerate(lines, 1):
            for word in line.partition("#")[0].split():
                found = True
                in_file = f"{path}, line {line_number}"
                if word.startswith("@"):
                    problems.append(f"{in_file}: {word} names another file. Name it as an argument")
                else:
                    yield _Word(word, in_file)
        if not found:
            problems.append(f"{place}: {path} has no targets")


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _Problem(f"cannot read {path}: {error.strerror}") from error
    if len(content) > _MAX_FILE_BYTES:
        raise _Problem(f"{path} is larger than {_MAX_FILE_BYTES} bytes; it is no list of hosts")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _Problem(f"{path}, line {line}: the text is not UTF-8") from error


def _parse(word: str) -> _Parsed:
    """Parse one word. Raises _Problem."""
    match = _USER.fullmatch(word)
    user, rest = (match["user"], match["rest"]) if match else (None, word)
    if "@" in rest:
        raise _Problem(f"{word} has no valid user name before @")
    if in_brackets := _IN_BRACKETS.fullmatch(rest):
        port = _port(in_brackets["port"][1:], word) if in_brackets["port"] else None
        return _addresses(f"{in_brackets['address']}{in_brackets['size'] or ''}", port, user)
    if rest.count(":") > 1 and "[" not in rest:  # IPv6 without brackets has no port
        return _addresses(rest, None, user)
    with_port = _PORT.fullmatch(rest)
    port = _port(with_port["port"], word) if with_port else None
    text = with_port["rest"] if with_port else rest
    if "/" in text or is_address(text):
        return _addresses(text, port, user)
    return _names(text, port, user)


def _port(text: str, word: str) -> int:
    if not re.fullmatch(r"\d{1,5}", text, re.ASCII) or not 0 < int(text) < 65536:
        raise _Problem(f"{word} has the port {text!r}; a port is a number from 1 to 65535")
    return int(text)


def _addresses(text: str, port: int | None, user: str | None) -> _Parsed:
    if "/" not in text:
        try:
            address = str(ipaddress.ip_address(text))
        except ValueError as error:
            raise _Problem(f"{text} is neither an address nor a name") from error
        return _Parsed(1, lambda: (address,), port, user, is_member=False, is_of_many=False)
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise _Problem(f"{text} is not a network such as 10.0.0.0/24: {error}") from error
    if str(network.network_address) != str(ipaddress.ip_address(text.partition("/")[0])):
        raise _Problem(
            f"{text} is an address inside a network. Name the network, {network}, or the address "
            f"without /{network.prefixlen}"
        )
    # The first address of a network is no machine's, and of IPv4 neither is the last one.
    is_small = network.max_prefixlen - network.prefixlen < 2
    count = network.num_addresses - (0 if is_small else 2 if network.version == 4 else 1)
    hosts = network.hosts
    return _Parsed(count, lambda: map(str, hosts()), port, user, is_member=True, is_of_many=True)


def _names(text: str, port: int | None, user: str | None) -> _Parsed:
    """Return the names of a text with ranges in brackets; the last range counts fastest."""
    fixed = _RANGE.split(text)[::2]
    if any("[" in part or "]" in part for part in fixed):
        raise _Problem(f"{text} has a bracket without the other one")
    ranges = [_numbers(items, text) for items in _RANGE.findall(text)]

    def host(chosen: Iterable[str]) -> str:
        return "".join(map("".join, itertools.zip_longest(fixed, chosen, fillvalue="")))

    first = host(next(one.texts()) for one in ranges)
    if _LIKE_ADDRESSES.fullmatch(first) and not is_address(first):
        raise _Problem(
            f"{text} is not an address. Write a network as 10.0.0.0/24, and a range as 10.0.0.[1-9]"
        )
    if not is_address(first) and not (_NAME.fullmatch(first) and len(first) <= _MAX_NAME):
        raise _Problem(f"{text} is not a host name")

    def hosts() -> Iterable[str]:
        return map(host, itertools.product(*(one.texts() for one in ranges)))

    count = math.prod(map(len, ranges))
    return _Parsed(count, hosts, port, user, is_member=False, is_of_many=bool(ranges))


@dataclass(frozen=True)
class _Numbers:
    """The numbers of a range in brackets, each with its own leading zeros."""

    groups: tuple[tuple[int, int, int], ...]  # first, last, width

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last, _width in self.groups)

    def texts(self) -> Iterator[str]:
        for first, last, width in self.groups:
            for number in range(first, last + 1):
                yield f"{number:0{width}}"


def _numbers(items: str, text: str) -> _Numbers:
    groups = []
    for item in items.split(","):
        match = _ITEM.fullmatch(item.strip())
        if match is None:
            raise _Problem(f"{text} has the range [{items}]; a range is like [1-40] or [01,03-12]")
        first, last = match["first"], match["last"] or match["first"]
        if int(last) < int(first):
            raise _Problem(f"{text} has the range [{items}], which ends before it starts")
        groups.append((int(first), int(last), len(first) if first.startswith("0") else 1))
    return _Numbers(tuple(groups))
