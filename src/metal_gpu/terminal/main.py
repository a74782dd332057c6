# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command line. A command imports what it needs when it runs, so that --help is quick."""

from __future__ import annotations

from importlib.metadata import version

import typer

app = typer.Typer(
    name="metal-gpu",
    help="Turn bare machines with NVIDIA GPUs into GPU nodes, and prove every GPU.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"metal-gpu {version('metal-gpu')}")
        raise typer.Exit


@app.callback()
def options(
    _version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Take the options that come before a command."""


def main() -> None:
    """Run the command of sys.argv."""
    app()
