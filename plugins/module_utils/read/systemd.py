# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse systemd's units: their state, and the command line that starts a service.

The command line has two sources. `parse_command` reads the output of `systemctl show`, which has
the command line that systemd uses, with replaced specifiers (%H). `parse_service` reads the unit
file, its drop-ins and its environment files, and keeps the file of each word, which is the file to
edit.

Source: systemd.unit(5), systemd.service(5) "COMMAND LINES", systemd.exec(5) "ENVIRONMENT",
systemd.syntax(7); src/basic/env-file.c for the syntax of environment files; `systemctl show` of
systemd 252, recorded in tests/unit/fixtures/systemd.
"""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatchcase
from itertools import takewhile
from posixpath import basename
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# A file in an earlier directory hides files of the same name in later ones.
UNIT_DIRECTORIES = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
# The states for which `systemctl is-enabled` exits with 0.
ENABLED = ("enabled", "enabled-runtime", "static", "alias", "indirect", "generated")

# What systemd accepts as the name of a unit (src/basic/unit-name.c).
_UNIT = re.compile(r"[A-Za-z0-9:_.\\-]+(?:@[A-Za-z0-9:_.\\@-]+)?\.[a-z]+", re.ASCII)
# isdigit() accepts texts that int() does not, such as superscripts or 5,000 digits.
_MICROSECONDS = re.compile(r"[0-9]{1,18}")
_VARIABLE = re.compile(r"\$(?:\$|\{(\w+)\}|(\w+))")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Quoted pieces first, then anything up to the end of the line; a backslash continues it.
_ENTRY = re.compile(
    r"""^[ \t]*(?P<name>[^\s#;=][^=\n]*?)[ \t]*=[ \t]*"""
    r"""(?P<quoted>(?:"(?:\\.|[^"\\])*"[ \t]*|'[^']*'[ \t]*)*)(?P<plain>(?:\\.|[^\\\n])*)""",
    re.MULTILINE | re.DOTALL,
)
_QUOTED = re.compile(r""""((?:\\.|[^"\\])*)"|'([^']*)\'""", re.DOTALL)
# Here, blanks separate the words, and quotes are removed.
_EXEC_START = re.compile(
    r"\{ path=(?P<path>.*?) ; argv\[\]=(?P<words>.*) ; (?:ignore_errors|flags)="
)
_ENVIRONMENT_FILE = re.compile(r"(?P<pattern>.+) \(ignore_errors=\w+\)")
_SHELLS = ("sh", "bash", "dash")
_PUNCTUATION = frozenset("();<>|&")  # of a shell, between commands


class Assignment(NamedTuple):
    """A variable set for a service."""

    name: str
    value: str
    file: str


class Word(NamedTuple):
    """A word of a command line."""

    text: str
    file: str
    variable: str | None  # the variable whose value contained it
    effective: bool  # False: written in a file, but its variable is overridden or unused


class Service(NamedTuple):
    """What a unit starts, according to its files."""

    words: tuple[Word, ...]  # the command line, followed by ineffective words
    environment_files: tuple[str, ...]  # patterns of paths, in the order they are read


def can_run(unit: str) -> bool:
    """Tell whether a file with this name can be a unit that runs.

    A template (NAME@.service) is none, only its instances are. systemctl rejects its name.
    """
    return bool(_UNIT.fullmatch(unit)) and len(unit) < 256


def parse_show(stdout: str) -> dict[str, dict[str, str]]:
    """Parse `systemctl show UNIT...`: properties, keyed by unit.

    A property with several values has one line for each. A unit with aliases has one key for each
    of its names.
    """
    units: dict[str, dict[str, str]] = {}
    for block in stdout.split("\n\n"):
        unit: dict[str, str] = {}
        for line in block.splitlines():
            name, assigns, value = line.partition("=")
            if assigns:
                unit[name] = f"{unit[name]}\n{value}" if name in unit else value
        if "Id" in unit:
            units.update(dict.fromkeys((*unit.get("Names", "").split(), unit["Id"]), unit))
    return units


def named_unit(error: str, units: Iterable[str]) -> str | None:
    """Return the first of the units that an error of systemctl names."""
    words = {word.strip("\"'.:,") for word in error.split()}
    return next((unit for unit in units if unit in words), None)


def parse_command(
    unit: Mapping[str, str], texts: Mapping[str, str], program: str
) -> tuple[str, ...]:
    """Return the words that systemd starts a service with; none if the unit is not loaded.

    `unit` has the properties ExecStart, Environment and EnvironmentFiles of `systemctl show`,
    `texts` the environment files, keyed by path. If a shell starts the program, these are the
    words of the program. A word that contains a blank becomes two words.
    """
    match = _EXEC_START.search(unit.get("ExecStart", ""))
    if not match:
        return ()
    pairs = (word.partition("=") for word in split_words(unit.get("Environment", "")))
    environment = [Assignment(name, value, "") for name, dummy, value in pairs]
    environment += _assignments(texts, _matching(texts, parse_environment_files(unit)))
    last = {assignment.name: assignment for assignment in environment}
    words = _expand([match["path"], *match["words"].split()[1:]], "", last)
    return tuple(word.text for word in _unwrap(words, program, "", last))


def parse_environment_files(unit: Mapping[str, str]) -> list[str]:
    """Return the patterns of the environment files in the output of `systemctl show`."""
    lines = unit.get("EnvironmentFiles", "").splitlines()
    return [match["pattern"] for match in map(_ENVIRONMENT_FILE.fullmatch, lines) if match]


def seconds_active(unit: Mapping[str, str], uptime_s: float) -> float | None:
    """Return for how many seconds a unit has been active; None if it is not."""
    return _seconds_since(unit, "ActiveEnterTimestampMonotonic", uptime_s)


def seconds_unchanged(unit: Mapping[str, str], uptime_s: float) -> float | None:
    """Return for how many seconds systemd has neither started nor reloaded an active unit.

    A reload changes the state of a unit, and back.
    """
    return _seconds_since(unit, "StateChangeTimestampMonotonic", uptime_s)


def _seconds_since(unit: Mapping[str, str], event: str, uptime_s: float) -> float | None:
    since = unit.get(event, "")
    if unit.get("ActiveState") != "active" or not _MICROSECONDS.fullmatch(since):
        return None
    return uptime_s - int(since) / 1e6


def parse_environment_file(text: str) -> dict[str, str]:
    """Parse an environment file. An invalid name, as in "export A=1", is ignored."""
    return {
        match["name"]: _unquote(match["quoted"], match["plain"])
        for match in _ENTRY.finditer(text)
        if _NAME.fullmatch(match["name"])
    }


def parse_service(
    texts: Mapping[str, str],
    unit: str,
    other_environment_files: Iterable[str] = (),
    program: str = "",
) -> Service:
    """Build the command line of a unit from texts keyed by path.

    The variables of missing environment files are unset. `other_environment_files` are files that
    admins edit although this unit does not read them. If a shell starts the program, the words are
    those of the program.
    """
    commands: list[tuple[str, str]] = []
    environment: list[Assignment] = []
    patterns: list[str] = []
    for name, value, file in _directives(texts, unit):
        if name == "ExecStart":
            commands = [*commands, (value, file)] if value else []
        elif name == "Environment":
            pairs = (word.partition("=") for word in split_words(value))
            assigned = [Assignment(name, text, file) for name, dummy, text in pairs]
            environment = [*environment, *assigned] if value else []
        elif name == "EnvironmentFile":
            patterns = [*patterns, value.lstrip("-")] if value else []
    read = _matching(texts, patterns)
    unread = [path for path in other_environment_files if path in texts and path not in read]
    environment += _assignments(texts, read)
    last = {assignment.name: assignment for assignment in environment}
    words: list[Word] = []
    for line, file in commands:
        started = _expand(split_words(line.lstrip("-@:+!")), file, last)  # prefixes of ExecStart
        words += _unwrap(started, program, file, last)
    used = {match[1] or match[2] for line, file in commands for match in _VARIABLE.finditer(line)}
    for assignment in [*environment, *_assignments(texts, unread)]:
        if assignment.name not in used or assignment is not last.get(assignment.name):
            words += _words(assignment, effective=False)
    return Service(tuple(words), tuple(patterns))


def parse_environment(texts: Mapping[str, str], unit: str) -> dict[str, Assignment]:
    """Return the variables that files set for a service, by name: the last one counts.

    A percent sign stands for itself if it is doubled; other specifiers stay as they are.
    """
    environment: list[Assignment] = []
    patterns: list[str] = []
    for name, value, file in _directives(texts, unit):
        if name == "Environment":
            pairs = (word.partition("=") for word in split_words(value))
            assigned = [
                Assignment(key, text.replace("%%", "%"), file) for key, _sign, text in pairs
            ]
            environment = [*environment, *assigned] if value else []
        elif name == "EnvironmentFile":
            patterns = [*patterns, value.lstrip("-")] if value else []
    environment += _assignments(texts, _matching(texts, patterns))
    return {assignment.name: assignment for assignment in environment}


def split_words(text: str) -> list[str]:
    """Split at blanks outside quotes; none if a quote is unbalanced."""
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _directives(texts: Mapping[str, str], unit: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and file of the [Service] section, in the order systemd applies them."""
    fragments = [f"{directory}/{unit}" for directory in UNIT_DIRECTORIES]
    files = [path for path in fragments if path in texts][:1]
    dropins: dict[str, str] = {}
    for fragment in fragments:
        for path in texts:
            if fnmatchcase(path, f"{fragment}.d/*.conf"):
                dropins.setdefault(path.rsplit("/", 1)[1], path)
    files += [dropins[name] for name in sorted(dropins)]
    for file in files:
        section = ""
        for line in _logical_lines(texts[file]):
            name, assigns, value = line.partition("=")
            if line.startswith("["):
                section = line
            elif assigns and section == "[Service]":
                yield name.strip(), value.strip(), file


def _logical_lines(text: str) -> Iterator[str]:
    """Join continued lines; a comment between them does not end the line."""
    pending = ""
    for raw in text.splitlines():
        line = raw.strip()
        if not line.startswith(("#", ";")):
            pending = f"{pending} {line}".strip()
            if pending.endswith("\\"):
                pending = pending[:-1].rstrip()
            else:
                yield pending
                pending = ""
    yield pending


def _assignments(texts: Mapping[str, str], paths: Iterable[str]) -> list[Assignment]:
    return [
        Assignment(name, value, path)
        for path in paths
        for name, value in parse_environment_file(texts[path]).items()
    ]


def _matching(texts: Mapping[str, str], patterns: Iterable[str]) -> list[str]:
    return [path for pattern in patterns for path in sorted(texts) if fnmatchcase(path, pattern)]


def _unwrap(
    words: Iterable[Word], program: str, file: str, variables: Mapping[str, Assignment]
) -> list[Word]:
    """Return the words of the program in the script of a shell's option -c.

    Other words are returned unchanged. The script can use the variables of the service.
    """
    words = list(words)
    if len(words) < 3 or basename(words[0].text) not in _SHELLS or not _is_script(words[1].text):
        return words
    script = shlex.shlex(
        " ".join(word.text for word in words[2:]), posix=True, punctuation_chars=True
    )
    script.whitespace_split, script.commenters = True, ""
    try:
        tokens = list(script)
    except ValueError:  # an unbalanced quote
        return words
    starts = [place for place, token in enumerate(tokens) if basename(token) == program]
    if not starts:
        return words
    command = takewhile(lambda token: not _separates(token), tokens[starts[-1] :])
    return list(_expand(command, file, variables))


def _is_script(option: str) -> bool:
    return option.startswith("-") and option.endswith("c")


def _separates(token: str) -> bool:
    return bool(token) and _PUNCTUATION.issuperset(token)


def _expand(words: Iterable[str], file: str, variables: Mapping[str, Assignment]) -> Iterator[Word]:
    """Replace the variables of a command line.

    A word "$NAME" becomes as many words as its value has; "${NAME}" is replaced by its value.
    """
    for word in words:
        match = _VARIABLE.fullmatch(word)
        if match and match[2]:
            if match[2] in variables:
                yield from _words(variables[match[2]], effective=True)
        else:
            yield Word(_substitute(word, variables), file, None, True)


def _words(assignment: Assignment, *, effective: bool) -> Iterator[Word]:
    for text in split_words(assignment.value):
        yield Word(text, assignment.file, assignment.name, effective)


def _substitute(word: str, variables: Mapping[str, Assignment]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        if match[1]:
            return variables[match[1]].value if match[1] in variables else ""
        return match[0]  # "$NAME" inside a word stays as it is

    return _VARIABLE.sub(value, word)


def _unquote(quoted: str, plain: str) -> str:
    """Undo the quoting of an environment file, where a backslash joins lines."""
    pieces = (
        # In double quotes only these characters lose their backslash.
        re.sub(r'\\(["\\`$])', r"\1", double.replace("\\\n", "")) or single
        for double, single in _QUOTED.findall(quoted)
    )
    rest = re.sub(r"\\(.)", r"\1", plain.replace("\\\n", ""), flags=re.DOTALL)
    return "".join(pieces) + rest.rstrip()
