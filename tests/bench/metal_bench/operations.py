# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many remote operations does a run cost a node?"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from installed import Run

from metal_bench.laboratory import Laboratory
from metal_bench.report import Goal, Section

WHOLE = "site.yml"
WHOLE_LIMIT = 2
ROLE_LIMIT = 1

# Nodes of each laboratory: one for the whole, one for the roles.
NODES = ("gpu-1", "gpu-2")
ENGINES = {"containerd": "containerd", "docker": "docker_ce"}  # engine → its role

TEXT = """\
A remote operation is a command or a file transfer over the node's SSH connection. Each costs a
round trip. In a large fleet, they decide how long a run takes. The operations are counted in the
output of `-vvv` for three runs: a first run on a node with an engine and a kubelet but without
NVIDIA software, a second run without changes, and a third run without pipelining. Pipelining is
off by default in Ansible. `site.yml` runs on one node. On a second node, a play has the roles one
after the other. There, a role uses what the one before it has observed last."""

# Ansible's own first task of a role.
_ROLE = re.compile(r"^TASK \[metal\.gpu\.(\w+) : Validating arguments .* 'main'", re.M)


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
    whole, other = NODES
    names = roles(engine)
    play = {"hosts": "all", "gather_facts": False, "become": True}
    playbook = lab.folder / "roles.yml"
    playbook.write_text(json.dumps([{**play, "roles": [f"metal.gpu.{name}" for name in names]}]))
    of_whole = _run(lab, whole, f"{engine}-site", "metal.gpu.site")
    of_roles = _run(lab, other, f"{engine}-roles", str(playbook))
    return {
        WHOLE: Count(*(count.total() for count in of_whole)),
        **{name: Count(*(count[name] for count in of_roles)) for name in names},
    }


def _run(lab: Laboratory, node: str, log: str, playbook: str) -> list[Counter[str]]:
    """Run a playbook three times. Return the node's remote operations by role."""
    address = lab.facts["nodes"][node]["address"]
    return [
        count(
            lab.ansible(
                f"operations-{log}-{turn}",
                *("ansible-playbook", playbook, f"--limit={node},localhost", "-vvv"),
                f"--extra-vars=ansible_ssh_pipelining={pipelining}",
            ),
            address,
        )
        for turn, pipelining in enumerate((True, True, False), start=1)
    ]


def count(run: Run, address: str) -> Counter[str]:
    """Count a node's operations, keyed by the role that needed them."""
    before, *parts = _ROLE.split(run.output)
    texts = zip(("", *parts[::2]), (before, *parts[1::2]), strict=True)
    return Counter({role: run._replace(output=text).operations()[address] for role, text in texts})


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
            "ansible-playbook roles.yml --limit=gpu-2,localhost -vvv   # all roles in one play",
        ),
    )
