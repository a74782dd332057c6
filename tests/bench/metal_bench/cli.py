# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command `tests/bench/bench`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer
from installed import PROJECT
from rich.console import Console

from metal_bench import (
    command,
    crowd,
    delay,
    documents,
    first_run,
    fleet,
    laboratory,
    machine,
    operations,
    peers,
    record,
    report,
    smoke,
)
from metal_bench.laboratory import Laboratory
from metal_bench.report import Measured, Section

REPORT = PROJECT / "docs" / "benchmarks.md"

FIRST_RUN, PEERS, OPERATIONS = "first-run", "peers", "operations"
COMMAND = "command"  # needs no GPU node
DOCUMENTS = "documents"  # needs no laboratory
# Parts that need GPU nodes, in this order. The last two leave a cluster without controllers.
PREPARED: dict[str, Callable[[Laboratory], Section]] = {
    "delay": lambda lab: delay.describe(delay.measure(lab)),
    "smoke": lambda lab: smoke.describe(smoke.measure(lab, os.cpu_count() or 1)),
    "fleet": lambda lab: fleet.describe(fleet.measure(lab)),
    "crowd": lambda lab: crowd.describe(crowd.measure(lab)),
}
PARTS = (DOCUMENTS, FIRST_RUN, PEERS, OPERATIONS, COMMAND, *PREPARED)

app = typer.Typer(pretty_exceptions_enable=False)
console = Console(highlight=False)


@app.command()
def main(
    only: Annotated[
        str, typer.Option(help=f"Parts to measure, with commas between: {', '.join(PARTS)}.")
    ] = "",
    roles: Annotated[
        Path | None,
        typer.Option("--peers", help="The folder with the roles of others, for the part peers."),
    ] = None,
) -> None:
    """Measure in separate laboratories, and write docs/benchmarks.md.

    Parts that this run does not measure stay as they were, with the machine that measured them.
    Without --peers, that is also the part peers.
    """
    wanted = only.split(",") if only else list(PARTS)
    unknown = sorted(set(wanted) - set(PARTS))
    if unknown:
        raise typer.BadParameter(f"no part {', '.join(unknown)}; the parts: {', '.join(PARTS)}")
    if only and PEERS in wanted and not roles:
        raise typer.BadParameter(f"{PEERS} needs a folder with the roles of others: --peers")
    started, here = time.monotonic(), machine.read()
    parts = record.load()
    for name, section in _measure(wanted, roles):
        parts[name] = Measured(here, section)
        # At once: a later part can fail.
        record.save(parts)
        REPORT.write_text(page(parts))
    console.print(f"written: {REPORT.relative_to(PROJECT)}")
    console.print(f"measured in {time.monotonic() - started:.0f} s; logs: {laboratory.LOGS}")


def page(parts: Mapping[str, Measured]) -> str:
    """Return docs/benchmarks.md."""
    missing = [name for name in PARTS if name not in parts]
    return report.render([parts[name] for name in PARTS if name in parts], missing)


def _measure(wanted: list[str], roles: Path | None) -> Iterator[tuple[str, Section]]:
    """Measure part after part, one laboratory at a time."""
    counts = {}
    if DOCUMENTS in wanted:
        _say(DOCUMENTS)
        yield DOCUMENTS, documents.describe(documents.measure())
    if FIRST_RUN in wanted:
        _say(FIRST_RUN)
        yield FIRST_RUN, first_run.describe(first_run.measure())
    if PEERS in wanted:
        _say(PEERS if roles else f"{PEERS}: not measured, because it needs --peers")
        if roles:
            yield PEERS, peers.describe(peers.measure(roles.resolve()))
    if OPERATIONS in wanted:
        _say(f"{OPERATIONS}, Docker")
        with laboratory.started("docker") as lab:
            counts["docker"] = operations.measure(lab, "docker")
    if {DOCUMENTS, FIRST_RUN, PEERS}.issuperset(wanted):
        return
    with laboratory.started("containerd") as lab:
        if OPERATIONS in wanted:
            _say(f"{OPERATIONS}, containerd")
            counts["containerd"] = operations.measure(lab, "containerd")
            yield OPERATIONS, operations.describe(counts)
        if COMMAND in wanted:
            _say(COMMAND)
            yield COMMAND, command.describe(command.measure(lab))
        if PREPARED.keys() & wanted:
            _say("preparing the nodes")
            lab.ansible("site", "ansible-playbook", "metal.gpu.site")
        for part in PREPARED:
            if part in wanted:
                _say(part)
                yield part, PREPARED[part](lab)


def _say(text: str) -> None:
    console.print(f"== {text}")
