# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`kubectl metal_gpu`, which is also `metal-gpu cluster`: what a cluster alone can tell."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from metal_gpu.terminal import exit_codes, pipes
from metal_gpu.terminal.help_text import Command

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
    from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import SmokeRow
    from metal_gpu.cluster.judge import Verdict
    from metal_gpu.cluster.look import Facts

HEADINGS = ("node", "GPU", "ready", "capacity", "allocatable", "free", "smoke", "verdict")
_LEAST = ("ready", "free", "capacity", "GPU", "allocatable")  # from the least important on
_BETWEEN = {"capacity": ", ", "allocatable": ", ", "verdict": " "}

_END = """
It needs no SSH, no Ansible and no inventory. It cannot see a card that the driver does not see:
`metal-gpu verify` compares with the PCI bus of each node.

The exit code is 0 if each node is `ok` or `busy`, 1 if one is not, 2 if an option or the kubeconfig
cannot be used, 3 if the API server gives no usable answer or lets `verify` run no pods, and 130
after Ctrl-C.
"""

app = typer.Typer(
    name="kubectl metal_gpu",
    help="Show the GPUs of a cluster. Needs only a kubeconfig.",
    no_args_is_help=True,
    rich_markup_mode=None,
    # Older versions of typer show the variables of each function, and some are credentials.
    pretty_exceptions_enable=False,
)


@app.callback()
def _group() -> None:
    """Show the GPUs of a cluster. Needs only a kubeconfig."""


Names = Annotated[
    list[str],
    typer.Argument(
        metavar="NODE", help="Only these nodes; default: all with GPUs.", show_default=False
    ),
]
Node = Annotated[
    list[str],
    typer.Option("--node", metavar="NODE", help="The same, as an option.", show_default=False),
]
Kubeconfig = Annotated[
    str,
    typer.Option("--kubeconfig", metavar="FILE", help="Instead of KUBECONFIG and ~/.kube/config."),
]
Context = Annotated[
    str, typer.Option("--context", metavar="NAME", help="Instead of the current context.")
]
Gpus = Annotated[
    int | None,
    typer.Option(
        "--gpus",
        metavar="N",
        min=0,
        help="How many GPUs each node must have. Without it, what its labels or its capacity say.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing if all is well.")]
NoSmoke = Annotated[bool, typer.Option("--no-smoke", help="Start no pods.")]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="Where the pods run.")
]
Image = Annotated[
    str,
    typer.Option(
        "--image",
        help="Image with vectorAdd. Without it, NVIDIA's for drivers from 555.42 on.",
        show_default=False,
    ),
]
RuntimeClass = Annotated[
    str, typer.Option("--runtime-class", metavar="NAME", help="RuntimeClass of the pods.")
]
Timeout = Annotated[
    int, typer.Option("--timeout", metavar="SECONDS", min=1, help="How long the pods may take.")
]


def verify(
    names: Names = [],  # noqa: B006
    node: Node = [],  # noqa: B006
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    gpus: Gpus = None,
    no_smoke: NoSmoke = False,
    namespace: Namespace = "default",
    image: Image = "",
    runtime_class: RuntimeClass = "",
    timeout: Timeout = 300,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    from metal_gpu.cluster.prove import IMAGE, Settings

    settings = None
    if not no_smoke:
        settings = Settings(
            namespace=namespace,
            image=image or IMAGE,
            runtime_class=runtime_class or None,
            timeout_s=timeout,
        )
    asked = [*names, *node]
    how = "json" if as_json else "quiet" if quiet else "table"
    code = _run({"kubeconfig": kubeconfig, "context": context}, asked, gpus, settings, how)
    raise typer.Exit(code)


def show(
    names: Names = [],  # noqa: B006
    node: Node = [],  # noqa: B006
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    gpus: Gpus = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    asked = [*names, *node]
    how = "json" if as_json else "quiet" if quiet else "table"
    raise typer.Exit(_run({"kubeconfig": kubeconfig, "context": context}, asked, gpus, None, how))


_VERIFY = "Compute on each free GPU in pods, and judge each node by what the cluster says."
_SHOW = "Judge each node by what the cluster says. Starts no pods."
app.command("verify", cls=Command, help=f"{_VERIFY}\n{_END}", short_help=_VERIFY)(verify)
app.command("show", cls=Command, help=f"{_SHOW}\n{_END}", short_help=_SHOW)(show)


def _run(
    options: Mapping[str, str],
    names: Sequence[str],
    gpus: int | None,
    settings: object | None,
    how: str,
) -> int:
    """Ask the cluster, print, and return the exit code."""
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.forbidden import no_answer
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import KubeError
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_settings import (
        AUTH_ARGUMENTS,
        SettingsInvalid,
        connect,
    )
    from metal_gpu.terminal import output

    # Where the command metal-gpu handles the signal, too, this function cleans up and tells more.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    given = {
        **dict.fromkeys(AUTH_ARGUMENTS),
        **{key: value or None for key, value in options.items()},
    }
    try:
        return _ask(connect(given), names, gpus, settings, how)
    except SettingsInvalid as error:
        output.error(str(error))
        return exit_codes.USAGE
    except KubeError as error:
        found = no_answer(str(error))
        if how == "json":
            output.print_json({"nodes": [], "plugins": None, "notes": [], "findings": [found]})
        else:
            output.print_finding(found)
        return exit_codes.NOT_ASKED
    except KeyboardInterrupt:
        from ansible_collections.metal.gpu.plugins.module_utils.cluster.proof_pod import ALL_RUNS

        # What could not be deleted is not known here.
        listing = f"kubectl get pods --all-namespaces --selector {ALL_RUNS}"
        output.message(f"stopped; `{listing}` lists pods that could not be deleted")
        return exit_codes.INTERRUPTED


def _ask(
    client: Client, names: Sequence[str], gpus: int | None, settings: object | None, how: str
) -> int:
    from metal_gpu.cluster.judge import judge
    from metal_gpu.cluster.look import look
    from metal_gpu.cluster.prove import Settings, prove
    from metal_gpu.terminal import output

    facts = look(client, names, gpus)
    smoke: dict[str, SmokeRow] = {}
    problems: list[dict[str, str]] = []
    if isinstance(settings, Settings) and facts.rows:
        smoke, problems = prove(client, facts, settings)
    if problems:
        facts.notes.append("no pods prove the GPUs; `show` and --no-smoke do without them")
    verdicts = judge(facts, smoke)
    is_well = bool(verdicts) and all(one.is_ok for one in verdicts)
    if how == "json":
        output.print_json(as_document(facts, verdicts, problems))
    elif how == "table" or problems or not is_well:
        _print(facts, verdicts, problems)
    if problems:
        return exit_codes.NOT_ASKED
    return exit_codes.OK if is_well else exit_codes.FOUND


def as_document(
    facts: Facts, verdicts: Sequence[Verdict], problems: Sequence[Mapping[str, str]]
) -> dict[str, object]:
    """Return what `--json` prints: schemas/cluster.json."""
    plugins = facts.plugins
    return {
        "nodes": [one._asdict() for one in verdicts],
        "plugins": None if plugins is None else [one._asdict() for one in plugins],
        "notes": facts.notes,
        "findings": problems,
    }


def rows(verdicts: Sequence[Verdict]) -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    return [
        (
            one.node,
            one.product or "-",
            {True: "yes", False: "no", None: "-"}[one.ready],
            _amounts(one, "capacity", one.capacity),
            _amounts(one, "allocatable", one.allocatable),
            _cell(one.free),
            "-" if one.asked is None else f"{one.proven}/{one.asked}",
            one.verdict,
        )
        for one in verdicts
    ]


def _print(
    facts: Facts, verdicts: Sequence[Verdict], problems: Sequence[Mapping[str, str]]
) -> None:
    from metal_gpu.terminal import output

    for found in [*problems, *(one for verdict in verdicts for one in verdict.findings)]:
        output.print_finding(found)
    if verdicts:
        output.print_table(HEADINGS, rows(verdicts), least=_LEAST, between=_BETWEEN)
    else:
        output.print_line(
            "No node of the cluster has GPUs in its capacity, or labels that say so. "
            "`metal-gpu site` sets nodes up."
        )
    for plugin in facts.plugins or ():
        ready = f"{plugin.ready} of {plugin.desired} pods ready"
        output.print_line(f"device plugin {plugin.name}: {ready}, {plugin.image}")
    if facts.plugins == []:
        output.print_line("The cluster has no device plugin for GPUs.")
    for note in facts.notes:
        output.message(note)


def _amounts(verdict: Verdict, key: str, amount: int | None) -> str:
    """Return an amount of whole GPUs, and what else there is of parts and shares."""
    others = [
        f"{_value(one, key)} {name.removeprefix('nvidia.com/')}"
        for name, one in verdict.resources.items()
        if name != "nvidia.com/gpu"
    ]
    return ", ".join([*([] if amount is None and others else [_cell(amount)]), *others])


def _value(amounts: object, key: str) -> object:
    return amounts[key] if isinstance(amounts, Mapping) else "-"


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def main() -> None:
    """Run `kubectl-metal_gpu`."""
    with pipes.watched():
        app(prog_name="kubectl metal_gpu")
