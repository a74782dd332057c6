# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command `lab`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from metal_lab import (
    faults,
    laboratory,
    mirror_service,
    nodes,
    registry,
    registry_faults,
    scenes,
)
from metal_lab.cache import CACHE, console, say
from metal_lab.description import DEFAULT, MACHINES, SYSTEMS, read
from metal_lab.parts import OF_ENGINE, PARTS
from metal_lab.processes import is_alive
from metal_lab.state import FOLDER, State, load, names

HELP = f"""
Real Kubernetes on this machine, with real container engines and simulated GPUs.

A laboratory is a cluster of containers that behave like machines: they boot with systemd, you log
in over SSH, and they have NVIDIA GPUs on their PCI bus. Only the GPUs and their kernel module are
simulated. The nodes start without NVIDIA software, and can install it from a local mirror.

\b
A first tour:
  lab up                        # start 2 nodes with 4 Tesla P100 each
  lab kubectl get nodes
  lab ssh gpu-1 lspci
  lab fault gpu-1 list          # list everything that can break
  lab fault gpu-1 lose-gpu 2    # the third GPU disappears from the bus
  lab fault gpu-1 restore
  lab down

\b
For your own nodes, write a description:
  parts: [container-toolkit, device-plugin]  # what the nodes can install
  drivers: [580.178.04]                      # versions of NVIDIA's driver
  nodes:
    - {{name: gpu-1, os: debian12, machine: a100x8}}
    - {{name: gpu-2, os: debian13, machine: t4x1, engine: docker}}
and start it: lab up FILE --name NAME

\b
The laboratory builds only what the description names.
  parts:    {", ".join(PARTS)}
  os:       {", ".join(SYSTEMS)}
  engine:   {", ".join(OF_ENGINE)}
  machine:  {", ".join(sorted(file.stem for file in MACHINES.glob("*.yml")))}
README.md explains all keys, and how a project adds its own inventory and scenes.
"""
app = typer.Typer(
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)

Name = Annotated[
    str, typer.Option("--name", envvar="METAL_LAB_NAME", help="The name of the laboratory.")
]
Described = Annotated[
    Path, typer.Argument(help="A YAML file with the nodes.", show_default="2 nodes with 4 P100")
]
NodeName = Annotated[str, typer.Argument(help="The name of a node, as in `lab status`.")]
NodeOrService = Annotated[
    str,
    typer.Argument(help=f"The name of a node, `{registry.NAME}` or `{mirror_service.NAME}`."),
]
# Commands that build, start or break something: Docker, debootstrap and mounts need root.
NEEDS_ROOT = {"up", "down", "build", "fault", "scene", "status"}
KEPT_ENVIRONMENT = (
    "PATH,HOME,PYTHONPATH,XDG_CACHE_HOME,METAL_LAB_NAME,METAL_LAB_FOLDER,METAL_LAB_DEBIAN_MIRROR,"
    "GOPROXY,GOSUMDB,http_proxy,https_proxy,no_proxy"
)
PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.callback()
def become_root(context: typer.Context) -> None:
    wants_help = "--help" in sys.argv
    if os.geteuid() != 0 and context.invoked_subcommand in NEEDS_ROOT and not wants_help:
        CACHE.mkdir(parents=True, exist_ok=True)  # as this user, with all folders above it
        sudo = ["sudo", f"--preserve-env={KEPT_ENVIRONMENT}", sys.executable, "-m", "metal_lab"]
        os.execvp("sudo", [*sudo, *sys.argv[1:]])


def existing(name: str) -> State:
    state = load(name)
    if not state.nodes:
        raise SystemExit(
            f"no laboratory {name!r} in {FOLDER}; to start it: lab up --name {name};"
            " to list the others: lab status"
        )
    return state


@app.command()
def up(description: Described = DEFAULT, name: Name = "default") -> None:
    """Start a laboratory. Does nothing if it runs as described.

    The first run builds what the description needs, in up to 15 minutes on 2 cores. Later runs
    take about 20 seconds.
    """
    state = laboratory.up(name, read(description))
    say(f"inventory: {state.inventory}")
    say(f"kubeconfig: {state.kubeconfig}")


@app.command()
def down(name: Name = "default") -> None:
    """Stop a laboratory and remove what it left.

    Does nothing if there is none. What `up` has built stays in the cache.
    """
    laboratory.down(load(name))
    say(f"laboratory {name} is down")


@app.command()
def build(description: Described = DEFAULT) -> None:
    """Build what `up` needs, and start nothing."""
    laboratory.prepare(read(description))


@app.command()
def status() -> None:
    """Show all laboratories of this folder."""
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
    console.print(table if table.row_count else f"no laboratory in {FOLDER}")


@app.command(context_settings=PASS_THROUGH)
def ssh(context: typer.Context, node: NodeName, name: Name = "default") -> None:
    """Log in to a node, or run a command there.

    You are its user `admin`, who can become root: lab ssh gpu-1 sudo journalctl --unit=kubelet
    """
    command = [*nodes.ssh_command(existing(name), node), *context.args]
    os.execvp(command[0], command)


@app.command(context_settings=PASS_THROUGH)
def kubectl(context: typer.Context, name: Name = "default") -> None:
    """Run kubectl as the cluster's admin.

    For example: lab kubectl get pods --all-namespaces
    """
    state = existing(name)
    program = str(Path(state.programs) / "kubectl")
    environment = {**os.environ, **nodes.kubectl_environment(state)}
    os.execve(program, [program, *context.args], environment)


@app.command()
def env(name: Name = "default") -> None:
    """Print shell lines that select a laboratory.

    After eval "$(lab env)", kubectl and Ansible use the laboratory.
    """
    state = existing(name)
    variables = {**nodes.kubectl_environment(state), "ANSIBLE_INVENTORY": str(state.inventory)}
    for variable, value in variables.items():
        say(f"export {variable}={shlex.quote(value)}")
    say(f"export PATH={shlex.quote(state.programs)}:$PATH")


@app.command()
def facts(name: Name = "default") -> None:
    """Print the facts of a laboratory as JSON.

    They are the variables of the inventory's template: addresses, mirror, versions, paths.
    """
    say(existing(name).facts.read_text())


@app.command(context_settings=PASS_THROUGH)
def fault(context: typer.Context, node: NodeOrService, fault: str, name: Name = "default") -> None:
    """Inject a fault into a node, into the registry, or into the mirror.

    `lab fault NODE list`, `lab fault registry list` and `lab fault mirror list` list the faults
    with their arguments.
    """
    state = existing(name)
    if node == registry.NAME:
        output = registry_faults.inject(state, fault, context.args)
    elif node == mirror_service.NAME:
        output = mirror_service.inject(state, fault, context.args)
    else:
        nodes.address(state, node)  # exits with the names of the nodes if `node` is not one
        output = faults.inject(state, node, fault, context.args)
    say(output or f"{node}: {shlex.join([fault, *context.args])}")


@app.command(context_settings=PASS_THROUGH)
def scene(context: typer.Context, node: NodeName, scene: str, name: Name = "default") -> None:
    """Set up one of the project's scenes on a node.

    `lab scene NODE list` lists the scenes. The description names their folder.
    """
    state = existing(name)
    nodes.address(state, node)
    if scene == "list":
        say(scenes.listing(Path(state.scenes) if state.scenes else None))
        return
    output = scenes.set_up(state, node, scene, context.args)
    say(output or f"{node}: {shlex.join([scene, *context.args])}")


def main() -> None:
    """Run the command."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # users of Debian do not have these
    app(prog_name="lab")
