# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command line. A command imports what it needs when it runs, so that --help is quick."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

import typer

from metal_gpu.terminal import (
    cluster,
    completion,
    doctor,
    exit_codes,
    explain,
    pipes,
    play,
    scan,
    top,
)
from metal_gpu.terminal.help_text import Command

app = typer.Typer(
    name="metal-gpu",
    help="Turn bare machines with NVIDIA GPUs into GPU nodes, and prove every GPU.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich takes longer to load than everything else together
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"metal-gpu {version('metal-gpu')}")
        raise typer.Exit


@app.callback()
def _commands(
    _version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Turn bare machines with NVIDIA GPUs into GPU nodes, and prove every GPU."""


def _add(command: Callable[..., None]) -> None:
    short = (command.__doc__ or "").partition("\n")[0]
    app.command(cls=Command, short_help=short)(command)


_add(scan.scan)
_add(doctor.doctor)
_add(explain.explain)
play.register(app)
_add(top.top)
app.add_typer(
    cluster.app,
    name="cluster",
    short_help="Show the GPUs of a cluster. Needs only a kubeconfig.",
)


def main() -> None:
    """Run the command of sys.argv. Ctrl-C ends it as an exit does, so that it cleans up."""
    signal.signal(signal.SIGINT, lambda *_frame: sys.exit(exit_codes.INTERRUPTED))
    completion.prepare()
    try:
        with pipes.watched():
            app()
    finally:
        completion.finish()
