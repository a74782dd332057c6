# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long does a first run take next to the roles that others use?"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from metal_bench import laboratory
from metal_bench.laboratory import HERE, Laboratory
from metal_bench.report import Goal, Section, number

ROUNDS = 3
LIMIT = 1.0
ROLES = {"geerlingguy.docker": "geerlingguy.docker", "nvidia_container_toolkit": "DeepOps"}

TEXT = """\
*Ours* is the playbook of the README for Docker without Kubernetes: the roles `nvidia_driver`,
`docker_ce` and `nvidia_container_runtime`. *Theirs* is geerlingguy.docker with DeepOps'
`nvidia_container_toolkit`. They install no driver, pin and prove nothing, and gather facts. Each
run has a virgin machine without Kubernetes of one laboratory. The second run is on the same
machine, without changes. The versions of Docker and of the toolkit are the same."""


# The addresses are those of the laboratory.
THEIRS: dict[str, Any] = {
    "name": "Set up docker run with GPUs",
    "hosts": "all",
    "become": True,
    "vars": {
        "docker_repo_url": "{{ bench_mirror }}",
        "docker_apt_gpg_key": "{{ docker_ce_repository_key }}",
        # The laboratory has no others.
        "docker_packages": ["docker-ce", "docker-ce-cli", "containerd.io"],
        "docker_install_compose_plugin": False,
        "docker_apt_ansible_distribution": "docker",  # the last part of the mirror's address
        "nvidia_container_toolkit_repo_base_url": "{{ bench_mirror }}/toolkit",
        # The role of the toolkit knows no Debian. Its commands for Ubuntu are the same.
        "ansible_distribution": "Ubuntu",
    },
    "roles": [*ROLES],
}


class Way(NamedTuple):
    """One way on one machine."""

    first_s: float
    first_operations: int
    again_s: float
    again_operations: int


class Round(NamedTuple):
    ours: Way
    theirs: Way


class Peers(NamedTuple):
    """All rounds, and the versions of the peers by their names."""

    versions: Mapping[str, str]
    rounds: Sequence[Round]


def measure(folder: Path) -> Peers:
    """Measure with the roles in a folder, each below its own name."""
    missing = [role for role in ROLES if not (folder / role / "tasks" / "main.yml").is_file()]
    if missing:
        raise SystemExit(f"{folder} has no role {', '.join(missing)}")
    versions = {name: _version(folder / role) for role, name in ROLES.items()}
    with laboratory.started("peers") as lab:
        (lab.folder / "theirs.yml").write_text(json.dumps([THEIRS]))
        rounds = [
            Round(_way(lab, "ours", turn, folder), _way(lab, "theirs", turn, folder))
            for turn in range(1, ROUNDS + 1)
        ]
    return Peers(versions, rounds)


def _way(lab: Laboratory, way: str, turn: int, folder: Path) -> Way:
    node, playbook = f"{way}-{turn}", HERE / "ours.yml"
    if way == "theirs":
        playbook = lab.folder / "theirs.yml"
        lab.ssh(f"peers-{node}-gnupg", node, (HERE / "gnupg.sh").read_text())
    first, again = (
        lab.ansible(
            f"peers-{node}-{run}",
            *("ansible-playbook", str(playbook), f"--limit={node}", "-vvv"),
            f"--extra-vars=bench_mirror={lab.facts['mirror']['url']}",
            ANSIBLE_ROLES_PATH=str(folder),
        )
        for run in ("first", "again")
    )
    address = lab.facts["nodes"][node]["address"]
    return Way(
        first.seconds,
        first.operations()[address],
        again.seconds,
        again.operations()[address],
    )


def _version(role: Path) -> str:
    """Return the version of a role in a checkout."""
    command = ["git", "-C", str(role), "log", "-1", "--format=%h of %cs"]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    return found.stdout.strip() or "unknown version"


def describe(peers: Peers | None) -> Section:
    rows: list[tuple[str, ...]] = []
    goals = []
    versions = "not measured: `make bench PEERS=FOLDER` measures the roles in a folder"
    if peers:
        first, again = (
            statistics.median(
                getattr(each.ours, field) / getattr(each.theirs, field) for each in peers.rounds
            )
            for field in ("first_s", "again_s")
        )
        goals = [Goal("first run with the driver, relative to peers without", first, LIMIT)]
        rows = [_row(way, [getattr(each, way) for each in peers.rounds]) for way in Round._fields]
        rows.append(("median ratio", number(first), "", number(again), ""))
        versions = "; ".join(
            f"{name}: commit {version}" for name, version in peers.versions.items()
        )
    return Section(
        "Next to other roles",
        tuple(goals),
        TEXT,
        ("", "first run", "operations", "no-change run", "operations"),
        tuple(rows),
        (
            "ansible-playbook tests/bench/ours.yml --limit=ours-1",
            "ansible-playbook theirs.yml --limit=theirs-1   # metal_bench/peers.py: THEIRS",
        ),
        remarks=f"Peers: {versions}.",
    )


def _row(way: str, ways: Sequence[Way]) -> tuple[str, ...]:
    median = Way(*map(statistics.median, zip(*ways, strict=True)))
    return (
        way,
        number(median.first_s, "s"),
        f"{median.first_operations:.0f}",
        number(median.again_s, "s"),
        f"{median.again_operations:.0f}",
    )
