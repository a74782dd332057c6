# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typer.main
from typer.testing import CliRunner

from metal_gpu.terminal.main import app


def commands(group, prefix):
    """Yield the commands of a group with their full names."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def test_each_command_and_option_has_help():
    found = dict(commands(typer.main.get_command(app), "metal-gpu"))
    assert {"metal-gpu explain", "metal-gpu site", "metal-gpu cluster verify"} <= found.keys()
    for name, command in found.items():
        assert command.help, name
        assert all(one.help for one in command.params), name


def test_examples_keep_their_lines():
    found = dict(commands(typer.main.get_command(app), "metal-gpu"))
    examples = [
        (name, line.strip())
        for name, command in found.items()
        for line in command.help.splitlines()
        if line.startswith(("* ", "    "))
    ]
    assert {"metal-gpu site", "metal-gpu doctor"} <= {name for name, _line in examples}
    for name, line in examples:
        words = name.split()[1:]
        shown = CliRunner().invoke(app, [*words, "--help"]).stdout
        assert line in map(str.strip, shown.splitlines()), name
