# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The generated part of docs/command.md: each command with its arguments and options.

To write it anew: `python -m pytest tests/unit/golden --update-golden`
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer.main

from ansible_collections.metal.gpu.tests.unit.golden.documents import assert_documented, table
from ansible_collections.metal.gpu.tests.unit.golden.nodes import ROOT
from metal_gpu.terminal.main import app

_HIDDEN = ("install_completion", "show_completion", "help")


def commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the commands of a group with their full names, in the order of their names."""
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix} {name}")
        elif not command.hidden:
            yield f"{prefix} {name}", command


def usage(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    words = [f"[{one.metavar}]…" if one.nargs != 1 else one.metavar for one in arguments]
    return " ".join([name, "[OPTIONS]", *words])


def names(parameter: Any) -> str:
    """Return how a parameter is written."""
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`"
    is_flag = getattr(parameter, "is_flag", False)
    value = "" if is_flag else f" {parameter.metavar or 'VALUE'}"
    return ", ".join(f"`{one}{value}`" for one in sorted(parameter.opts, key=len))


def rows(command: Any) -> Iterator[list[str]]:
    yield ["argument or option", "meaning"]
    for parameter in command.params:
        if parameter.name not in _HIDDEN and not getattr(parameter, "hidden", False):
            default = parameter.default
            shown = default not in (None, "", False, [], ()) and not callable(default)
            more = f" Default: `{default}`." if shown else ""
            yield [names(parameter), f"{parameter.help}{more}".replace("|", "\\|")]


def document() -> str:
    parts = []
    for name, command in commands(typer.main.get_command(app), "metal-gpu"):
        text = inspect.cleandoc(command.help or "")
        parts.append(
            f"\n### {name}\n\n```\n{usage(name, command)}\n```\n\n{text}\n\n{table(rows(command))}"
        )
    return "".join(parts) + "\n"


def test_each_command_is_documented(is_update: bool) -> None:
    path = ROOT / "docs" / "command.md"
    assert_documented(path, "commands", document(), is_update=is_update)


def test_each_command_and_option_has_help() -> None:
    for name, command in commands(typer.main.get_command(app), "metal-gpu"):
        assert command.help, name
        assert all(one.help for one in command.params), name
