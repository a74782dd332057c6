# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many remote operations does a run cost a node?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from metal_bench.laboratory import Laboratory
from metal_bench.report import Goal, Section

WHOLE = "site.yml"
WHOLE_LIMIT = 2
ROLE_LIMIT = 1

# Nodes of each laboratory: one for the whole, one for role after role.
NODES = ("gpu-1", "gpu-2")
ENGINES = {"containerd": "containerd", "docker": "docker_ce"}  # engine → its role

TEXT = """\
A remote operation is a command or a file transfer over the node's SSH connection. Each costs a
round trip. In a large fleet, they decide how long a run takes. The operations are counted in the
output of `-vvv` for three runs: a first run on a node with an engine and a kubelet but without
NVIDIA software, a second run without changes, and a third run without pipelining. Pipelining is
off by default in Ansible. `site.yml` runs on one node, and each role alone on a second node."""


class Count(NamedTuple):
    """The remote operations of three runs in a row."""

    first: int
    again: int
    again_without_pipelining: int


def roles(engine: str) -> tuple[str, ...]:
    """Return the roles that site.yml runs on a node, in order."""
    return (
        *("preflight", "nvidia_driver", ENGINES[engine], "nvidia_container_runtime"),
        *("kubelet_device_plugins", "device_plugin", "verify"),
    )


def measure(lab: Laboratory, engine: str) -> dict[str, Count]:
    """Return the counts of each role and of the whole playbook."""
    whole, single = NODES
    site = ("ansible-playbook", "metal.gpu.site", f"--limit={whole},localhost")
    counts = {WHOLE: _count(lab, whole, f"{engine}-{WHOLE}", site)}
    for role in roles(engine):
        include = ("--become", "--module-name=include_role", f"--args=name=metal.gpu.{role}")
        counts[role] = _count(lab, single, f"{engine}-{role}", ("ansible", single, *include))
    return counts


def _count(lab: Laboratory, node: str, log: str, command: Sequence[str]) -> Count:
    """Run the command three times. Return the node's remote operations."""
    address = lab.facts["nodes"][node]["address"]
    runs = [
        lab.ansible(
            f"operations-{log}-{turn}",
            *command,
            *("-vvv", f"--extra-vars=ansible_ssh_pipelining={pipelining}"),
        )
        for turn, pipelining in enumerate((True, True, False), start=1)
    ]
    return Count(*(run.operations()[address] for run in runs))


def describe(counts: Mapping[str, Mapping[str, Count]]) -> Section:
    """Describe the counts, keyed by engine."""
    whole = [of_engine[WHOLE].again for of_engine in counts.values()]
    alone = [
        count.again
        for of_engine in counts.values()
        for subject, count in of_engine.items()
        if subject != WHOLE
    ]
    return Section(
        "Remote operations per node",
        (
            Goal("remote operations, no-change run of site.yml", max(whole), WHOLE_LIMIT),
            Goal("remote operations, no-change run of a role alone", max(alone), ROLE_LIMIT),
        ),
        TEXT,
        ("engine", "", "first run", "no-change run", "no-change run without pipelining"),
        tuple(
            (engine, f"`{subject}`", *map(str, count))
            for engine, of_engine in counts.items()
            for subject, count in of_engine.items()
        ),
        (
            "ansible-playbook metal.gpu.site --limit=gpu-1,localhost -vvv | grep -c '^<.*SSH: '",
            "ansible gpu-2 --become -m include_role -a name=metal.gpu.containerd -vvv",
        ),
    )
