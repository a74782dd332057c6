# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`metal-gpu top`: what the GPUs of a fleet do now."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from metal_gpu.terminal import exit_codes
from metal_gpu.terminal.machines import (
    AcceptKeys,
    AsJson,
    AskBecomePass,
    AskPass,
    Hosts,
    Identity,
    Inventory,
    Jump,
    Port,
    Quiet,
    Timeout,
    User,
    chosen,
    settings,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metal_gpu.gpu_pods import GpuPods
    from metal_gpu.hosts import Host
    from metal_gpu.ssh.settings import Settings
    from metal_gpu.top import Machine


def top(
    hosts: Hosts = None,
    inventory: Inventory = None,
    user: User = None,
    port: Port = None,
    identity: Identity = None,
    jump: Jump = None,
    ask_pass: AskPass = False,
    ask_become_pass: AskBecomePass = False,
    accept_new_host_keys: AcceptKeys = False,
    timeout: Timeout = 10.0,
    kubeconfig: Annotated[
        str | None,
        typer.Option(help="Ask this cluster for the names of the pods.", metavar="FILE"),
    ] = None,
    context: Annotated[str | None, typer.Option(help="A context of the kubeconfig.")] = None,
    interval: Annotated[
        float, typer.Option("--interval", "-n", min=0.5, help="Refresh interval in seconds.")
    ] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="Ask once, print, and end.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show what the GPUs of many machines do: use, memory, temperature, power, Xid errors, pods.

    What needs attention is first: machines that do not answer, GPUs that fail, NVSwitches with
    fatal errors (SXid), GPUs with errors in the kernel log, then the busiest. A reading that is a
    finding has its code: `metal-gpu doctor HOST` and `metal-gpu explain CODE` have the remedy.
    Changes nothing on a machine. Ctrl-C ends it.

    With `--json`, each interval prints one document in one line. `--quiet` needs `--once`.

    Exit codes: 130 after Ctrl-C. With `--once`: 0 all is well; 1 a GPU or NVSwitch has a problem;
    3 a machine gave no answer. 2: the arguments or the inventory cannot be used.

    Examples:

        metal-gpu top                                   # inventory.yml, or this machine
        metal-gpu top --inventory inventory.yml --kubeconfig ~/.kube/config
        metal-gpu top --once --quiet                    # nothing, if all is well
        metal-gpu top --once --json admin@10.0.0.7 | jq '.machines[].gpus[].utilization'
    """
    from metal_gpu.terminal import output

    if quiet and not once:
        output.error("--quiet needs --once: the view of a terminal shows all GPUs")
        raise typer.Exit(exit_codes.USAGE)
    machines = chosen(hosts or [], inventory, by_ssh=bool(port or jump), quiet=quiet).hosts
    login = settings(
        user=user,
        port=port,
        identity=identity,
        jump=jump,
        ask_pass=ask_pass,
        ask_become_pass=ask_become_pass,
        accept_new_host_keys=accept_new_host_keys,
        timeout_s=timeout,
    )
    pods = _pods(kubeconfig, context, once=once) if kubeconfig or context else None
    code = _watch(machines, login, pods, interval, once=once, as_json=as_json, quiet=quiet)
    raise typer.Exit(code)


def _pods(kubeconfig: str | None, context: str | None, *, once: bool) -> GpuPods:
    from metal_gpu.gpu_pods import GpuPods

    pods = GpuPods(kubeconfig, context)
    if once:
        pods.read()
    else:
        pods.follow()
    return pods


def _watch(
    hosts: Sequence[Host],
    settings: Settings,
    pods: GpuPods | None,
    interval_s: float,
    *,
    once: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Ask and show until Ctrl-C, or once. Return the exit code."""
    from metal_gpu.terminal.top_view import Lines, Screen, View
    from metal_gpu.top import Top

    is_live = sys.stdout.isatty() and not as_json and not once
    view: View = Screen() if is_live else Lines(as_json=as_json, quiet=quiet)
    with Top(hosts, settings) as fleet, view:
        while True:
            start = time.monotonic()
            machines = fleet.ask(pods.names() if pods else None, None if once else interval_s)
            view.show(machines, pods.error if pods else None)
            if once:
                return _exit_code(machines)
            time.sleep(max(0.0, start + interval_s - time.monotonic()))


def _exit_code(machines: Sequence[Machine]) -> int:
    from metal_gpu.top import is_failing

    if not all(machine["answered"] for machine in machines):
        return exit_codes.NOT_ASKED
    return exit_codes.FOUND if any(map(is_failing, machines)) else exit_codes.OK
