# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every command has a test in the laboratory that calls it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import typer.main

from metal_gpu.terminal.main import app

ROOT = Path(__file__).parents[3]
COMMANDS = typer.main.get_command(app).commands
# `kubectl metal_gpu` is `metal-gpu cluster`.
KUBECTL = COMMANDS["cluster"].commands
# How the tests call metal-gpu, also on a terminal.
_COMMAND, _PLUGIN = {"command", "metal_gpu", "_on_terminal"}, {"plugin"}


def words(callers: set[str]) -> set[str]:
    """Return the words that tests hand to the command."""
    return {
        argument.value
        for path in ROOT.glob("molecule/command/tests/*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        if call.func.id in callers
        for argument in call.args
        if isinstance(argument, ast.Constant)
    }


@pytest.mark.parametrize("name", [one for one in COMMANDS if one != "cluster"])
def test_every_command_is_in_the_laboratory(name: str) -> None:
    assert name in words(_COMMAND)


@pytest.mark.parametrize("name", KUBECTL)
def test_every_command_of_kubectl_is_in_the_laboratory(name: str) -> None:
    assert name in words(_PLUGIN)
