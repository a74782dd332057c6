# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does gpu_capacity cost in a large cluster?"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from metal_bench import processes
from metal_bench.laboratory import Laboratory
from metal_bench.processes import Cost
from metal_bench.report import Goal, Section, number

SIZES = (2000, 5000)
TURNS = 5
LIMIT = 1.5
IMAGES = 50  # as many as a kubelet reports
GPUS = "4"  # of a node of the laboratory
PREFIX = "crowd-"

TEXT = f"""\
A real API server has Node objects without machines. They are copies of a laboratory's node, with
the {IMAGES} images that a long-lived kubelet reports. `gpu_capacity` gets the names of all nodes,
and expects {GPUS} GPUs on each. All nodes have them, so it returns after its list. *Bare* is the
same client: it lists all nodes in pages of 500, decodes them, and keeps nothing. Both run in a
separate process. The time excludes Python's start and the imports. The memory is the peak of the
process."""


class Size(NamedTuple):
    """The cost of both programs for one number of nodes."""

    nodes: int
    kib: float  # of one Node object
    pairs: Sequence[tuple[Cost, Cost]]  # bare list and module, one after the other


def node(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Node object to create, derived from one that a kubelet reports."""
    metadata = {key: found["metadata"][key] for key in ("labels", "annotations")}
    status = dict(found["status"])
    status["images"] = [
        {
            "names": [
                f"registry.example/team/image-{number}@sha256:{number:064x}",
                f"registry.example/team/image-{number}:1.0.{number}",
            ],
            "sizeBytes": 10**8 + number,
        }
        for number in range(IMAGES)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "status": status,
    }


def measure(lab: Laboratory) -> list[Size]:
    """Measure. The laboratory then has many nodes and no controllers."""
    sizes: list[Size] = []
    for size in SIZES:
        names = grow(lab, size)
        module = {
            "kubeconfig": lab.kubeconfig,
            "nodes": dict.fromkeys(names, GPUS),
            "wait_timeout": 60,
        }
        bare = {"kubeconfig": lab.kubeconfig}
        pairs = [
            (processes.run("list_nodes", bare), processes.run("gpu_capacity", module))
            for _turn in range(TURNS)
        ]
        kib = len(json.dumps(pattern(lab))) / 1024
        sizes.append(Size(size, kib, pairs))
    return sizes


def grow(lab: Laboratory, size: int) -> list[str]:
    """Create Node objects until there are `size` of them. Return their names.

    The laboratory then has no controllers: they would be busy with thousands of nodes whose
    kubelets are silent.
    """
    names = [f"{PREFIX}{number:05}" for number in range(size)]
    found = lab.kubectl("get", "nodes", "--output=name").split()
    if not any(name.startswith(f"node/{PREFIX}") for name in found):
        lab.stop("kube-controller-manager", "kube-scheduler")
    new = [name for name in names if f"node/{name}" not in found]
    arguments = {"kubeconfig": lab.kubeconfig, "names": new, "node": pattern(lab)}
    processes.run("create_nodes", arguments)
    return names


def pattern(lab: Laboratory) -> dict[str, Any]:
    """Return the Node object that all others copy."""
    return node(json.loads(lab.kubectl("get", "node", "gpu-1", "--output=json")))


def describe(sizes: Sequence[Size]) -> Section:
    goals, rows = [], []
    for size in sizes:
        bare, module = (
            Cost(*map(statistics.median, zip(*costs, strict=True)))
            for costs in zip(*size.pairs, strict=True)
        )
        ratio = statistics.median(module.seconds / bare.seconds for bare, module in size.pairs)
        figure = f"gpu_capacity against {size.nodes} nodes, relative to a bare paged list"
        goals.append(Goal(figure, ratio, LIMIT))
        rows.append(
            (
                str(size.nodes),
                number(bare.seconds, "s"),
                number(module.seconds, "s"),
                number(ratio),
                f"{bare.peak_mib:.0f} MiB",
                f"{module.peak_mib:.0f} MiB",
            )
        )
    return Section(
        "Large clusters",
        tuple(goals),
        TEXT,
        (
            *("nodes", "bare list", "`gpu_capacity`", "ratio"),
            *("peak memory, bare list", "peak memory, `gpu_capacity`"),
        ),
        tuple(rows),
        (
            "python -m metal_bench.worker list_nodes < arguments.json",
            "python -m metal_bench.worker gpu_capacity < arguments.json",
        ),
        remarks=f"Here, a Node object is {sizes[0].kib:.0f} KiB of JSON.",
    )
