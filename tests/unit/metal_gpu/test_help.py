# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
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


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("teardown --serial 1", "teardown has no batches"),
        ("verify --serial 1", "verify has no batches"),
        ("mirror_list --report x", "mirror_list has no verdicts"),
    ],
)
def test_option_without_effect_is_refused_and_not_shown(words, reason):
    command, option, _value = words.split()
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 2
    assert reason in done.stderr
    assert option not in CliRunner().invoke(app, [command, "--help"]).stdout
    assert option in CliRunner().invoke(app, ["docker_hosts", "--help"]).stdout


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
