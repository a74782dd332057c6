# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How much longer does a first run take than a bare installation of the same packages?"""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from metal_bench import laboratory
from metal_bench.laboratory import HERE, Laboratory
from metal_bench.report import Goal, Section, number, table

ROUNDS = 3
ADDED_LIMIT_S = 12
TAGS = "--tags=driver,engine,runtime,kubelet"
SERVICE = "containerd"

PROFILE = {
    "ANSIBLE_CALLBACKS_ENABLED": "ansible.posix.profile_tasks",
    "PROFILE_TASKS_TASK_OUTPUT_LIMIT": "all",
}
LONGEST = 10

PACKAGES = "dpkg-query --show --showformat='${Package}=${Version}\\n'"
SOURCES = "cd /etc/apt/sources.list.d && tail -n +1 -v -- *.sources"

TEXT = """\
The nodes are virgin nodes of one laboratory without an engine: no Docker, no containerd. *Roles*
is the part of `site.yml` that changes nodes: driver, engine, runtime and kubelet. It includes
observation, plans, refusals and proof. *Bare* is a shell script over one SSH connection. It uses
the same repositories and keys, one `apt-get update`, one `apt-get install` of the same packages in
the same versions, and one restart of the engine. It loads no module, registers no runtime, holds
no package and checks nothing. *Plain* does the same as a playbook of three tasks. It shows the cost
of Ansible itself.

The laboratory's driver packages are small and build no kernel module. So the bare installation
takes seconds, and a real one takes minutes. This is the strictest comparison: the roles add a
constant time, and the ratio shows it at its largest."""


class Round(NamedTuple):
    """The seconds of each way, on nodes of one laboratory."""

    bare: float
    plain: float
    roles: float
    tasks: Mapping[str, float]  # those of the roles, by role and name
    operations: int  # of the roles
    cpu_s: float  # of the controller, for the roles


class Recipe(NamedTuple):
    """What the roles installed on a virgin node, so that other ways can install the same."""

    packages: Sequence[str]  # name=version
    sources: Mapping[str, str]  # texts of /etc/apt/sources.list.d, keys included, by file name
    service: str = SERVICE


def script(recipe: Recipe) -> str:
    """Return the shell script of a bare installation."""
    lines = ["set -eu", "export DEBIAN_FRONTEND=noninteractive"]
    for name, text in recipe.sources.items():
        lines += [f"cat > /etc/apt/sources.list.d/{name} <<'END'", text.rstrip("\n"), "END"]
    lines += [
        "apt-get update",
        f"apt-get install --yes --no-install-recommends {' '.join(recipe.packages)}",
        f"systemctl restart {recipe.service}",
    ]
    return "\n".join([*lines, ""])


def parse_sources(text: str) -> dict[str, str]:
    """Parse the output of `tail -v`: the texts of files, keyed by file name."""
    parts = (part.partition(" <==\n") for part in text.split("==> ")[1:])
    return {name: content.strip("\n") + "\n" for name, _arrow, content in parts}


def parse_profile(text: str) -> dict[str, float]:
    """Parse the output of the callback profile_tasks: the seconds of each task, summed up."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for name, taken in re.findall(r"^(\S.*?) -{2,} ?([\d.]+)s$", text, re.M):
        seconds[name] += float(taken)
    return dict(seconds)


def measure() -> list[Round]:
    """Measure each way on its own virgin node. Each round uses a new laboratory."""
    rounds = []
    for turn in range(1, ROUNDS + 1):
        with laboratory.started("virgin") as lab:
            roles = lab.ansible(
                f"first-run-roles-{turn}",
                *("ansible-playbook", "metal.gpu.site", "--limit=roles,localhost", TAGS, "-vvv"),
                inventory=None,
                **PROFILE,
            )
            recipe = _read_recipe(lab)
            bare = lab.ssh(f"first-run-bare-{turn}", "bare", script(recipe))
            plain = lab.ansible(
                f"first-run-plain-{turn}",
                *("ansible-playbook", str(HERE / "plain.yml"), "--limit=plain"),
                *("--extra-vars", json.dumps(recipe._asdict())),
            )
        tasks = parse_profile(roles.output)
        operations = roles.operations()[lab.facts["nodes"]["roles"]["address"]]
        rounds.append(
            Round(bare.seconds, plain.seconds, roles.seconds, tasks, operations, roles.cpu_s)
        )
    return rounds


def _read_recipe(lab: Laboratory) -> Recipe:
    """Return what the node `roles` has and a virgin node does not."""
    virgin, made = (
        lab.ssh(f"first-run-packages-{node}", node, PACKAGES).output.split()
        for node in ("bare", "roles")
    )
    sources = parse_sources(lab.ssh("first-run-sources", "roles", SOURCES).output)
    return Recipe([package for package in made if package not in virgin], sources)


def describe(rounds: Sequence[Round]) -> Section:
    ways = Round._fields[:3]
    seconds = {way: statistics.median(getattr(each, way) for each in rounds) for way in ways}
    ratios = {
        way: statistics.median(getattr(each, way) / each.bare for each in rounds) for way in ways
    }
    added = statistics.median(each.roles - each.bare for each in rounds)
    operations = max(each.operations for each in rounds)
    cpu_s = statistics.median(each.cpu_s for each in rounds)
    return Section(
        "First run on a virgin node",
        (Goal("what the roles add to a bare installation", added, ADDED_LIMIT_S, "s"),),
        TEXT,
        ("", f"median of {len(rounds)}", "median ratio to bare"),
        tuple((way, number(seconds[way], "s"), number(ratios[way])) for way in ways),
        (
            f"ansible-playbook metal.gpu.site --limit=roles,localhost {TAGS}",
            "ssh bare sudo bash -s < script   # metal_bench/first_run.py: script()",
            "ansible-playbook tests/bench/plain.yml --limit=plain",
        ),
        remarks=f"The roles add {added:.1f} s and need {operations} remote operations, and "
        f"{cpu_s:.1f} s of processor time on the controller. "
        f"The longest tasks of all rounds:\n\n{_longest(rounds)}".rstrip(),
    )


def _longest(rounds: Sequence[Round]) -> str:
    """Return the tasks that take most of the time, as a table."""
    total = sum(each.roles for each in rounds)
    tasks: defaultdict[str, float] = defaultdict(float)
    for each in rounds:
        for name, taken in each.tasks.items():
            tasks[name] += taken
    longest = sorted(tasks, key=lambda name: tasks[name], reverse=True)[:LONGEST]
    rows = ((name, f"{tasks[name] / total:.0%}") for name in longest)
    return table(("task", "share of the run"), tuple(rows))
