# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command `tests/lab/lab`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from metal_lab import faults, laboratory, nodes
from metal_lab.cache import LAB_SOURCES, console, say
from metal_lab.description import read
from metal_lab.processes import is_alive
from metal_lab.state import CHECKOUT, State, load, names

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

Name = Annotated[
    str, typer.Option("--name", envvar="METAL_LAB_NAME", help="Which laboratory of this checkout.")
]
# Commands that build, start or break something: Docker, debootstrap and mounts need root.
NEEDS_ROOT = {"up", "down", "build", "fault", "status"}
KEPT_ENVIRONMENT = (
    "PATH,HOME,PYTHONPATH,XDG_CACHE_HOME,METAL_LAB_NAME,METAL_LAB_DEBIAN_MIRROR,GOPROXY,GOSUMDB,"
    "http_proxy,https_proxy,no_proxy"
)
PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.callback()
def become_root(context: typer.Context) -> None:
    """A laboratory: real Kubernetes, real engines, simulated GPUs."""
    wants_help = "--help" in sys.argv
    if os.geteuid() != 0 and context.invoked_subcommand in NEEDS_ROOT and not wants_help:
        sudo = ["sudo", f"--preserve-env={KEPT_ENVIRONMENT}", sys.executable, "-m", "metal_lab"]
        os.execvp("sudo", [*sudo, *sys.argv[1:]])


def existing(name: str) -> State:
    state = load(name)
    if not state.nodes:
        raise SystemExit(
            f"no laboratory {name!r} in this checkout; to start it: tests/lab/lab up --name {name}"
        )
    return state


@app.command()
def up(
    description: Annotated[Path, typer.Argument(help="YAML file with the nodes.")] = LAB_SOURCES
    / "labs"
    / "default.yml",
    name: Name = "default",
) -> None:
    """Start a laboratory. Does nothing if it runs. The first run builds its programs."""
    state = laboratory.up(name, read(description))
    say(f"inventory: {state.folder / 'inventory.yml'}")
    say(f"kubeconfig: {state.folder / 'kubeconfig'}")


@app.command()
def down(name: Name = "default") -> None:
    """Stop a laboratory and remove everything that it left. Does nothing if there is none."""
    laboratory.down(load(name))
    say(f"laboratory {name} is down")


@app.command()
def build() -> None:
    """Build everything that `up` needs, without starting anything."""
    description = read(LAB_SOURCES / "labs" / "default.yml")
    laboratory.prepare({(node.os, node.engine) for node in description})


@app.command()
def status() -> None:
    """Show the laboratories of this checkout."""
    table = Table("laboratory", "part", "where", "state", box=None)
    for name in names():
        state = load(name)
        alive = nodes.running(state)
        for process, identity in state.processes.items():
            table.add_row(
                name, process, f"pid {identity.pid}", "up" if is_alive(identity) else "DOWN"
            )
        for node, address in state.nodes.items():
            table.add_row(name, node, address, "up" if node in alive else "DOWN")
    console.print(table if table.row_count else "no laboratory in this checkout")


@app.command(context_settings=PASS_THROUGH)
def ssh(context: typer.Context, node: str, name: Name = "default") -> None:
    """Log in to a node as its admin, or run a command there."""
    command = [*nodes.ssh_command(existing(name), node), *context.args]
    os.execvp(command[0], command)


@app.command(context_settings=PASS_THROUGH)
def kubectl(context: typer.Context, name: Name = "default") -> None:
    """Run kubectl as the cluster's admin."""
    state = existing(name)
    program = str(Path(state.programs) / "kubectl")
    os.execve(program, [program, *context.args], nodes.environment(state))


@app.command(context_settings=PASS_THROUGH)
def fault(context: typer.Context, node: str, fault: str, name: Name = "default") -> None:
    """Inject a fault into a node. `fault NODE list` lists the faults."""
    state = existing(name)
    nodes.ssh_command(state, node)  # exits with the names of the nodes if `node` is not one
    output = faults.inject(state, node, fault, context.args)
    say(output or f"{node}: {shlex.join([fault, *context.args])}")


@app.command()
def env(name: Name = "default") -> None:
    """Print shell lines that select it for kubectl and ansible: eval "$(tests/lab/lab env)"."""
    state = existing(name)
    say(f"export KUBECONFIG={shlex.quote(str(state.folder / 'kubeconfig'))}")
    say(f"export ANSIBLE_INVENTORY={shlex.quote(str(state.folder / 'inventory.yml'))}")
    installed, tools = CHECKOUT / ".ansible/installed", CHECKOUT / ".venv/bin"
    say(f"export ANSIBLE_COLLECTIONS_PATH={shlex.quote(str(installed))}")
    say(f"export PATH={shlex.quote(f'{tools}:{state.programs}')}:$PATH")
