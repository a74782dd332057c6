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
*Ours* is the play of docs/docker-hosts.md, without registries: the roles
`nvidia_driver`, `docker_ce` and `nvidia_container_runtime`. *Theirs* is geerlingguy.docker with
DeepOps' `nvidia_container_toolkit`. They install no driver, pin and prove nothing, and gather
facts. Each run has a virgin machine without Kubernetes of one laboratory. The second run is on the
same machine, without changes. The versions of Docker and of the toolkit are the same."""


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
    """One run on one machine."""

    seconds: float
    operations: int


class Round(NamedTuple):
    ours: Way
    theirs: Way


class Peers(NamedTuple):
    """All rounds, a run without changes, and the versions of the peers by their names."""

    versions: Mapping[str, str]
    rounds: Sequence[Round]
    again: Round


def measure(folder: Path) -> Peers:
    """Measure with the roles in a folder, each below its own name."""
    missing = [role for role in ROLES if not (folder / role / "tasks" / "main.yml").is_file()]
    if missing:
        raise SystemExit(f"{folder} has no role {', '.join(missing)}")
    versions = {name: _version(folder / role) for role, name in ROLES.items()}
    with laboratory.started("peers") as lab:
        (lab.folder / "theirs.yml").write_text(json.dumps([THEIRS]))
        for turn in range(1, ROUNDS + 1):
            lab.ssh(f"peers-gnupg-{turn}", f"theirs-{turn}", (HERE / "gnupg.sh").read_text())
        rounds = [
            Round(*(_run(lab, way, f"{way}-{turn}", "first", folder) for way in Round._fields))
            for turn in range(1, ROUNDS + 1)
        ]
        again = Round(*(_run(lab, way, f"{way}-1", "again", folder) for way in Round._fields))
    return Peers(versions, rounds, again)


def _run(lab: Laboratory, way: str, node: str, log: str, folder: Path) -> Way:
    playbook = (HERE if way == "ours" else lab.folder) / f"{way}.yml"
    run = lab.ansible(
        f"peers-{node}-{log}",
        *("ansible-playbook", str(playbook), f"--limit={node}", "-vvv"),
        f"--extra-vars=bench_mirror={lab.facts['mirror']['url']}",
        inventory=None,
        ANSIBLE_ROLES_PATH=str(folder),
    )
    return Way(run.seconds, run.operations()[lab.facts["nodes"][node]["address"]])


def _version(role: Path) -> str:
    """Return the version of a role in a checkout."""
    command = ["git", "-C", str(role), "log", "-1", "--format=%h of %cs"]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    return found.stdout.strip() or "unknown version"


def describe(peers: Peers) -> Section:
    ratio = statistics.median(each.ours.seconds / each.theirs.seconds for each in peers.rounds)
    again = peers.again.ours.seconds / peers.again.theirs.seconds
    versions = (f"{name} at commit {version}" for name, version in peers.versions.items())
    return Section(
        "Next to other roles",
        (Goal("first run with the driver, relative to peers without", ratio, LIMIT),),
        TEXT,
        ("", "first run", "operations", "no-change run", "operations"),
        (
            _row("ours", [each.ours for each in peers.rounds], peers.again.ours),
            _row("theirs", [each.theirs for each in peers.rounds], peers.again.theirs),
            ("ratio", number(ratio), "", number(again), ""),
        ),
        (
            "ansible-playbook tests/bench/ours.yml --limit=ours-1",
            "ansible-playbook theirs.yml --limit=theirs-1   # metal_bench/peers.py: THEIRS",
        ),
        f"First runs are medians of {len(peers.rounds)}. Peers: {', '.join(versions)}.",
    )


def _row(way: str, firsts: Sequence[Way], again: Way) -> tuple[str, ...]:
    return (
        way,
        number(statistics.median(first.seconds for first in firsts), "s"),
        str(max(first.operations for first in firsts)),
        number(again.seconds, "s"),
        str(again.operations),
    )
