# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command `tests/bench/bench`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Annotated

import typer
from installed import PROJECT
from rich.console import Console
from rich.markdown import Markdown

from metal_bench import crowd, delay, first_run, laboratory, machine, operations, report, smoke
from metal_bench.laboratory import Laboratory
from metal_bench.report import Section

REPORT = PROJECT / "docs" / "benchmarks.md"

FIRST_RUN, OPERATIONS = "first-run", "operations"
# Parts that need GPU nodes, in this order. The last one leaves a cluster without controllers.
PREPARED: dict[str, Callable[[Laboratory], Section]] = {
    "delay": lambda lab: delay.describe(delay.measure(lab)),
    "smoke": lambda lab: smoke.describe(smoke.measure(lab, os.cpu_count() or 1)),
    "crowd": lambda lab: crowd.describe(crowd.measure(lab)),
}
PARTS = (OPERATIONS, FIRST_RUN, *PREPARED)

app = typer.Typer(pretty_exceptions_enable=False)
console = Console(highlight=False)


@app.command()
def main(
    only: Annotated[
        str, typer.Option(help=f"Parts to measure, with commas between: {', '.join(PARTS)}.")
    ] = "",
) -> None:
    """Measure in separate laboratories and write docs/benchmarks.md.

    With --only, print the report and write no file, because a report covers one run.
    """
    wanted = only.split(",") if only else list(PARTS)
    unknown = sorted(set(wanted) - set(PARTS))
    if unknown:
        raise typer.BadParameter(f"no part {', '.join(unknown)}; the parts: {', '.join(PARTS)}")
    started, here = time.monotonic(), machine.read()
    sections = list(_measure(wanted))
    text = report.render(sections, here)
    if only:
        console.print(Markdown(text))
    else:
        REPORT.write_text(text)
        console.print(f"written: {REPORT.relative_to(PROJECT)}")
    console.print(f"measured in {time.monotonic() - started:.0f} s; logs: {laboratory.LOGS}")


def _measure(wanted: list[str]) -> Iterator[Section]:
    """Measure part after part, one laboratory at a time."""
    counts = {}
    if FIRST_RUN in wanted:
        _say(FIRST_RUN)
        yield first_run.describe(first_run.measure())
    if OPERATIONS in wanted:
        _say(f"{OPERATIONS}, Docker")
        with laboratory.started("docker") as lab:
            counts["docker"] = operations.measure(lab, "docker")
    if set(wanted) == {FIRST_RUN}:
        return
    with laboratory.started("containerd") as lab:
        if OPERATIONS in wanted:
            _say(f"{OPERATIONS}, containerd")
            counts["containerd"] = operations.measure(lab, "containerd")
            yield operations.describe(counts)
        if PREPARED.keys() & wanted:
            _say("preparing the nodes")
            lab.ansible("site", "ansible-playbook", "metal.gpu.site")
        for part in PREPARED:
            if part in wanted:
                _say(part)
                yield PREPARED[part](lab)


def _say(text: str) -> None:
    console.print(f"== {text}")
