# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Load configuration files that people wrote: their content, or the place that is wrong. No I/O."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any, NamedTuple

import yaml

# The parser in C, where PyYAML has it: a CDI specification of eight GPUs is a thousand lines.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# tomllib has attributes for the place from Python 3.14 on only.
_TOML_ERROR = re.compile(
    r"(?P<problem>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)",
    re.DOTALL,
)


class Document(NamedTuple):
    """A configuration file: its content, or what is wrong with it."""

    content: dict[str, Any]
    error: str | None  # with file, line and column


def load_toml(path: str, text: str) -> Document:
    try:
        return Document(tomllib.loads(text), None)
    except tomllib.TOMLDecodeError as error:
        match = _TOML_ERROR.fullmatch(str(error))
        if match is None:
            return Document({}, f"{path}: {error}")
        lines = text.split("\n")
        line, column = match["line"] or len(lines), match["column"] or len(lines[-1]) + 1
        return Document({}, f"{path}, line {line}, column {column}: {match['problem']}")
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits, 5,000 brackets
        return Document({}, f"{path}: {error}")


def load_json(path: str, text: str) -> Document:
    try:
        return _mapping(path, json.loads(text) if text.strip() else {})
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        return Document({}, f"{path}, {place}: {error.msg}")
    except (ValueError, RecursionError) as error:
        return Document({}, f"{path}: {error}")


def load_yaml(path: str, text: str) -> Document:
    try:
        content = yaml.load(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        return Document({}, f"{path}{place}: {error.problem}")
    # A date in a thirteenth month is no YAMLError, and neither is text that is no UTF-8.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return Document({}, f"{path}: {error}")
    return _mapping(path, {} if content is None else content)


def load(path: str, text: str) -> Document:
    """Load a file in the language that its suffix tells, else as YAML, which JSON is, too."""
    return (load_toml if path.endswith(".toml") else load_yaml)(path, text)


def _mapping(path: str, content: Any) -> Document:
    if isinstance(content, dict):
        return Document(content, None)
    return Document({}, f"{path}: holds no mapping, but {type(content).__name__}")
