# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Do smoke pods on several nodes take longer than on one?"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import yaml
from installed import PROJECT

from metal_bench import processes
from metal_bench.laboratory import Laboratory
from metal_bench.report import Goal, Section, number

NODES = (1, 2, 4)
TURNS = 3
TOLERANCE = 0.25  # the difference between two runs

TEXT = """\
`gpu_smoke_pod` starts a pod with every free GPU on each node, runs `nvidia-smi` in it, and deletes
the pods. All nodes share the cores of this machine. So the time may grow with the number of nodes
per core, but not more. The goal allows {percent} % more, the difference between two runs."""


class Smoke(NamedTuple):
    """Seconds of each turn, keyed by the number of nodes."""

    cores: int
    seconds: Mapping[int, Sequence[float]]


def measure(lab: Laboratory, cores: int) -> Smoke:
    defaults = yaml.safe_load((PROJECT / "roles/verify/defaults/main.yml").read_text())
    arguments = {
        "kubeconfig": lab.kubeconfig,
        "image": defaults["verify_smoke_image"],
        "gpus": "free",
    }
    seconds: dict[int, list[float]] = {count: [] for count in NODES}
    for _turn in range(TURNS):
        for count in NODES:
            names = list(lab.facts["nodes"])[:count]
            cost = processes.run("gpu_smoke_pod", {**arguments, "nodes": names})
            seconds[count].append(cost.seconds)
    return Smoke(cores, seconds)


def describe(smoke: Smoke) -> Section:
    medians = {count: statistics.median(turns) for count, turns in smoke.seconds.items()}
    one = medians[1]
    goals = tuple(
        Goal(
            f"smoke pods on {count} nodes, relative to one ({smoke.cores} cores)",
            seconds / one,
            max(1, count / smoke.cores) + TOLERANCE,
        )
        for count, seconds in medians.items()
        if count > 1
    )
    return Section(
        "Smoke pods",
        goals,
        TEXT.format(percent=int(TOLERANCE * 100)),
        ("nodes", f"median of {TURNS}", "relative to one node"),
        tuple(
            (str(count), number(seconds, "s"), number(seconds / one))
            for count, seconds in medians.items()
        ),
        ('ansible localhost -m metal.gpu.gpu_smoke_pod -a \'{"nodes": […], "gpus": "free", …}\'',),
    )
