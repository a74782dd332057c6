# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does a healthy node cost the controller, in a fleet of any size?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from installed import Run

from metal_bench import crowd, processes
from metal_bench.laboratory import HERE, Laboratory
from metal_bench.report import Goal, Section, number

SIZES = (50, 200, 1000, 2000)
NODE = "gpu-1"  # whose observation all nodes answer with
PLAYBOOKS = ("site", "verify")

CPU_LIMIT_S = 0.15
MEMORY_LIMIT_GB = 1.5
GROWTH_LIMIT = 1.1  # of the cost of a node, when a fleet doubles
LINES_LIMIT = 40  # besides one for each node

TEXT = f"""\
All nodes are healthy. A connection plugin answers at once with the observation of a real node, so
that the controller is measured, and not the nodes. A real API server has a Node object for each
node, with {crowd.IMAGES} images, and a pod of the device plugin. Nothing changes, and no smoke pods
run. The processor time is that of `ansible-playbook` with all its processes. The memory is the peak
of the largest of them. Lines are those of the callback `metal.gpu.quiet`."""


class Cost(NamedTuple):
    """The cost of one run without changes."""

    playbook: str
    nodes: int
    cpu_s: float
    peak_mib: float
    lines: int
    seconds: float


def measure(lab: Laboratory) -> list[Cost]:
    """Measure. The laboratory then has many nodes and no controllers."""
    record = lab.folder / "observation.json"
    _record(lab, record)
    pod = _plugin_pod(lab)
    variables = {
        "METAL_BENCH_RECORD": str(record),
        "METAL_BENCH_NODE": NODE,
        "ANSIBLE_CONNECTION_PLUGINS": str(HERE / "connection_plugins"),
        "ANSIBLE_STDOUT_CALLBACK": "metal.gpu.quiet",
    }
    costs: list[Cost] = []
    names: list[str] = []
    for size in SIZES:
        new = crowd.grow(lab, size)[len(names) :]
        processes.run("create_pods", {"kubeconfig": lab.kubeconfig, "nodes": new, "pod": pod})
        names += new
        inventory = lab.folder / f"fleet-{size}.json"
        inventory.write_text(json.dumps(_inventory(lab.inventory, names)))
        for playbook in PLAYBOOKS:
            run = lab.ansible(
                f"fleet-{playbook}-{size}",
                *("ansible-playbook", f"metal.gpu.{playbook}", "--extra-vars=verify_smoke=false"),
                inventory=inventory,
                **variables,
            )
            costs.append(_cost(playbook, size, run))
    return costs


def _record(lab: Laboratory, record: Path) -> None:
    """Write what the node answers to an observation. It is the only JSON of this run."""
    printed = record.with_suffix(".printed")
    printed.unlink(missing_ok=True)
    lab.ansible(
        "fleet-record",
        *("ansible", NODE, "--become", "--module-name=metal.gpu.plan", '--args={"roles": []}'),
        f"--extra-vars=ansible_ssh_executable={HERE / 'recording-ssh'}",
        METAL_BENCH_RECORD=str(printed),
    )
    (line,) = (line for line in printed.read_text().splitlines() if line.startswith('{"changed"'))
    record.write_text(line)


def _plugin_pod(lab: Laboratory) -> dict[str, Any]:
    """Return the pod of the device plugin on the recorded node."""
    words = ("get", "pods", "--namespace=kube-system", "--output=json")
    selectors = (
        "--selector=app.kubernetes.io/name=nvidia-device-plugin",
        f"--field-selector=spec.nodeName={NODE}",
    )
    (pod,) = json.loads(lab.kubectl(*words, *selectors))["items"]
    return dict(pod)


def _inventory(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Return the laboratory's inventory with other nodes, each like the recorded one."""
    inventory: dict[str, Any] = yaml.safe_load(path.read_text())
    group = inventory["gpu_nodes"]
    host = {name: value for name, value in group["hosts"][NODE].items() if name != "ansible_host"}
    group["hosts"] = dict.fromkeys(names, host)
    group["vars"] |= {"ansible_connection": "recorded", "ansible_pipelining": True}
    return inventory


def _cost(playbook: str, size: int, run: Run) -> Cost:
    lines = len(run.output.splitlines())
    return Cost(playbook, size, run.cpu_s, run.peak_mib, lines, run.seconds)


def describe(costs: Sequence[Cost]) -> Section:
    largest = max(cost.nodes for cost in costs)
    by_run = {(cost.playbook, cost.nodes): cost for cost in costs}
    goals = [goal for playbook in PLAYBOOKS for goal in _goals(playbook, largest, by_run)]
    more_lines = max(cost.lines - cost.nodes for cost in costs)
    goals.append(Goal("lines besides one for each node", more_lines, LINES_LIMIT))
    return Section(
        "A fleet without changes",
        tuple(goals),
        TEXT,
        ("playbook", "nodes", "processor time", "for each node", "peak memory", "lines", "time"),
        tuple(
            (
                f"`{cost.playbook}`",
                str(cost.nodes),
                number(cost.cpu_s, "s"),
                number(cost.cpu_s / cost.nodes, "s"),
                f"{cost.peak_mib:.0f} MiB",
                str(cost.lines),
                number(cost.seconds, "s"),
            )
            for cost in costs
        ),
        (
            "ansible-playbook metal.gpu.site -e verify_smoke=false -i INVENTORY",
            "ansible-playbook metal.gpu.verify -e verify_smoke=false -i INVENTORY",
        ),
    )


def _goals(playbook: str, largest: int, costs: Mapping[tuple[str, int], Cost]) -> list[Goal]:
    """Return the figures of a playbook in the largest fleet, and of its growth to that size."""
    cost, half = costs[playbook, largest], costs[playbook, largest // 2]
    name = f"no-change {playbook} on {largest} nodes"
    per_node = cost.cpu_s / cost.nodes
    return [
        Goal(f"processor time for each node, {name}", per_node, CPU_LIMIT_S, "s"),
        Goal(
            f"the same, relative to {half.nodes} nodes",
            per_node / (half.cpu_s / half.nodes),
            GROWTH_LIMIT,
        ),
        Goal(
            f"peak memory of the controller, {name}",
            cost.peak_mib * 2**20 / 1e9,
            MEMORY_LIMIT_GB,
            "GB",
        ),
    ]
