# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command line. A command imports what it needs when it runs, so that --help is quick."""

from __future__ import annotations

import typer

from metal_gpu.terminal import cluster, play
from metal_gpu.terminal.explain import explain

app = typer.Typer(
    name="metal-gpu",
    help="Turn bare machines with NVIDIA GPUs into GPU nodes, and prove every GPU.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

app.command()(explain)
play.register(app)
app.add_typer(cluster.app, name="cluster")


def main() -> None:
    """Run the command of sys.argv."""
    app()
