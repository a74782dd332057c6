# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report is a pure function of what was measured."""

from __future__ import annotations

import pytest
import typer
from installed import Run

from metal_bench import (
    cli,
    command,
    crowd,
    delay,
    documents,
    first_run,
    fleet,
    machine,
    operations,
    peers,
    record,
    report,
    smoke,
)
from metal_bench.crowd import Size
from metal_bench.first_run import Round
from metal_bench.operations import Count
from metal_bench.peers import Peers, Way
from metal_bench.processes import Cost
from metal_bench.report import Goal, Measured, Section
from metal_bench.smoke import Smoke

SECTION = Section(
    title="Part",
    goals=(Goal("operations", 6, 6), Goal("delay", 1.5, 1.0, "s")),
    text="What was done.",
    columns=("", "first"),
    rows=(("site.yml", "20"),),
    commands=("make bench",),
    remarks="What follows.",
)

RENDERED = """\
|  | run 1 | run 2 |
| --- | --- | --- |
| machine | 2 cores | 4 cores |
| load | 0.1 |  |

| figure | measured | goal |  | of |
| --- | --- | --- | --- | --- |
| operations | 6 | 6 | met | run 2 |
| delay | 1.50 s | 1.00 s | **missed** | run 2 |

## Part

What was done.

|  | first |
| --- | --- |
| site.yml | 20 |

What follows.

```shell
make bench
```

Measured in run 2.
"""
HERE = {"machine": "2 cores"}


def test_render_puts_goals_beside_results():
    first = Measured({**HERE, "load": "0.1"}, SECTION._replace(title="Other", goals=()))
    text = report.render([first, Measured({"machine": "4 cores"}, SECTION)])
    assert text.startswith(report.HEAD)
    other = text[text.index("## Other") : text.index("## Part")]
    assert other.endswith("Measured in run 1.\n\n")
    assert text.removeprefix(f"{report.HEAD}\n").replace(other, "") == RENDERED


def test_page_names_the_parts_that_nobody_has_measured():
    text = report.render([Measured(HERE, SECTION)], ["fleet", "peers"])
    assert "\nNot measured yet: fleet, peers.\n" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"only": "fleets"}, "no part fleets; the parts: documents, "),
        ({"only": "fleet,peers"}, "peers needs a folder with the roles of others"),
    ],
)
def test_parts_that_cannot_be_measured_are_refused(options, words):
    with pytest.raises(typer.BadParameter, match=words):
        cli.main(**options)


def test_record_keeps_parts_of_former_runs(tmp_path):
    path = tmp_path / "results.yml"
    parts = {"part": Measured(HERE, SECTION)}
    record.save(parts, path)
    assert record.load(path) == parts
    assert list(tmp_path.iterdir()) == [path]


def test_page_is_made_of_the_record():
    assert cli.REPORT.read_text() == cli.page(record.load())


OPERATIONS = {
    "docker": {"site.yml": Count(25, 2, 18), "docker_ce": Count(9, 1, 6)},
    "containerd": {"site.yml": Count(22, 1, 12), "containerd": Count(9, 4, 24)},
}
FLEET = [
    fleet.Cost(playbook, nodes, nodes * 0.1, nodes / 2, nodes + 7, 60.0)
    for playbook in fleet.PLAYBOOKS
    for nodes in fleet.SIZES
]
SLOW = Way(20.0, 30)
PEERS = Peers(
    {"DeepOps": "f00 of 2026-08-18"},
    [peers.Round(Way(15.0, 25), SLOW), peers.Round(Way(30.0, 25), SLOW)],
    peers.Round(Way(5.0, 1), SLOW),
)
COSTS = ((Cost(1.0, 80), Cost(1.2, 90)), (Cost(2.0, 80), Cost(3.6, 90)))
COMMAND = command.Measured(
    0.25,
    11.0,
    [
        command.Cost("metal-gpu doctor", 50, 2.5, 100.0, 4.0),
        command.Cost("ansible", 50, 25.0, 100.0, 20.0),
        command.Cost("metal-gpu doctor", 200, 8.0, 120.0, 12.0),
        command.Cost("ansible", 200, 100.0, 100.0, 80.0),
    ],
)
TURNS = {"read": [0.01, 0.02, 0.03], "edit": [0.1, 0.9, 0.2], "restore": [0.1, 0.4, 0.3]}


@pytest.mark.parametrize(
    ("section", "measured", "met"),
    [
        pytest.param(operations.describe(OPERATIONS), (2, 4), (True, False), id="operations"),
        pytest.param(
            first_run.describe(
                [Round(4, 6, 6, {}, 30, 5), Round(8, 9, 99, {}, 31, 5), Round(4, 5, 17, {}, 30, 5)]
            ),
            (13,),
            (False,),
            id="first-run-median-of-what-is-added",
        ),
        pytest.param(peers.describe(PEERS), (1.125,), (False,), id="peers-median-of-ratios"),
        pytest.param(
            fleet.describe(FLEET),
            (*(0.1, 1.0, 1000 * 2**20 / 1e9) * 2, 7),
            (True,) * 7,
            id="fleet",
        ),
        pytest.param(
            command.describe(COMMAND),
            (0.25, 11.0, 0.04, 1.2),
            (True, False, True, False),
            id="command-largest-and-smallest-number-of-names",
        ),
        pytest.param(documents.describe(TURNS), (0.2, 0.3), (True, False), id="documents-median"),
        pytest.param(delay.describe([0.2, 3.0, 0.4]), (0.4,), (True,), id="delay-median"),
        pytest.param(
            smoke.describe(Smoke(2, {1: [2.0], 2: [2.4], 4: [4.8]})),
            (1.2, 2.4),
            (True, False),
            id="smoke-pods-share-the-cores",
        ),
        pytest.param(
            smoke.describe(Smoke(8, {1: [2.0], 4: [2.6]})), (1.3,), (False,), id="smoke-more-cores"
        ),
        pytest.param(crowd.describe([Size(500, 12, COSTS)]), (1.5,), (True,), id="crowd"),
    ],
)
def test_figures_are_medians_beside_their_goals(section, measured, met):
    assert tuple(goal.measured for goal in section.goals) == pytest.approx(measured)
    assert tuple(goal.met for goal in section.goals) == met
    assert all(len(row) == len(section.columns) for row in section.rows)


PRINTED = """\
<10.0.0.1> SSH: EXEC ssh
TASK [metal.gpu.nvidia_driver : Validating arguments against arg spec 'main' - The driver] ***
<10.0.0.1> SSH: EXEC ssh
<10.0.0.2> SSH: EXEC ssh
TASK [metal.gpu.preflight : Prove that no step remains] ***
<10.0.0.1> SSH: PUT file
TASK [metal.gpu.verify : Validating arguments against arg spec 'main' - The verdict] ***
"""


def test_operations_belong_to_the_role_that_needs_them():
    counts = operations.count(Run(0, PRINTED, 1.0), "10.0.0.1")
    assert counts == {"": 1, "nvidia_driver": 2, "verify": 0}
    assert counts.total() == 3


@pytest.mark.parametrize(
    "figure",
    [
        "remote operations, no-change run of site.yml",
        "remote operations, no-change run of a role alone",
        f"| `{operations.WHOLE}` |",
        "what the roles add to a bare installation",
        "## Next to other roles",
        *(f"no-change {playbook} on {fleet.SIZES[-1]} nodes" for playbook in fleet.PLAYBOOKS),
        "lines besides one for each node",
        "kubelet has published the GPUs → gpu_capacity returns",
        *(f"gpu_capacity against {size} nodes" for size in crowd.SIZES),
        "peak memory, `gpu_capacity`",
        *(f"smoke pods on {count} nodes, relative to one" for count in smoke.NODES[1:]),
        "metal-gpu --help",
        "metal-gpu scan of 254 addresses",
        f"metal-gpu doctor on {command.SIZES[-1]} names",
        "config_document, edit 2000 lines of TOML | 0.20 s | 0.20 s | met |",
        "config_document, restore 2000 lines of TOML",
        "| machine |",
        "| date |",
        "commit ",
    ],
)
def test_report_has_every_figure(figure):
    sections = [
        operations.describe(OPERATIONS),
        first_run.describe([Round(4, 6, 6, {}, 30, 5)]),
        peers.describe(PEERS),
        command.describe(COMMAND),
        documents.describe(TURNS),
        delay.describe([0.2]),
        smoke.describe(Smoke(2, {count: [2.0] for count in smoke.NODES})),
        fleet.describe(FLEET),
        crowd.describe([Size(size, 12, COSTS) for size in crowd.SIZES]),
    ]
    parts = [Measured(machine.read(), section) for section in sections]
    assert figure in " ".join(report.render(parts).split())
