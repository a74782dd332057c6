# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does the command `metal-gpu` cost, beside Ansible on the same machines?"""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import installed
import yaml
from installed import INSTALLED, PROJECT, Run

from metal_bench.laboratory import Laboratory
from metal_bench.report import Goal, Section, number

PROGRAM = (sys.executable, "-m", "metal_gpu")
SIZES = (50, 200)
NODE = "gpu-1"  # which all names mean
FORKS = 8  # an sshd refuses some of more than 10 logins that begin at the same time
TURNS = 5
NETWORK = "127.77.7"  # 254 addresses of this machine
ANSWER = tuple(f"{NETWORK}.{number}" for number in (1, 9, 100, 254))

HELP_LIMIT_S = 0.3
SCAN_LIMIT_S = 10
CPU_LIMIT_S = 0.06
GROWTH_LIMIT = 1.1

TEXT = f"""\
The sshd of one node has many names. `metal-gpu doctor` and `ansible -m metal.gpu.node_info` observe
it under each name, {FORKS} at a time, with the same code on the node. The processor time is that of
the controller, with all its processes. The memory is the peak of the largest of them. The scan is
one of 254 addresses of this machine, of which {len(ANSWER)} answer."""


class Cost(NamedTuple):
    """The cost of one observation of many names."""

    program: str
    machines: int
    cpu_s: float
    peak_mib: float
    seconds: float


class Measured(NamedTuple):
    """Everything that was measured."""

    help_s: float
    scan_s: float
    costs: Sequence[Cost]


def measure(lab: Laboratory) -> Measured:
    """Measure. The laboratory stays as it is."""
    costs = []
    forks = f"--forks={FORKS}"
    _doctor(lab, 1, forks)  # pip compiles what it installs; this checkout may be new
    for size in SIZES:
        path, doctor = _doctor(lab, size, forks)
        module = ("ansible", "gpu_nodes", "--become", "--module-name=metal.gpu.node_info", forks)
        ansible = _run(lab.folder, path, *module)
        _check(ansible, ansible.returncode == 0)
        for name, run in (("metal-gpu doctor", doctor), ("ansible", ansible)):
            costs.append(Cost(name, size, run.cpu_s, run.peak_mib, run.seconds))
    seconds = [installed.timed([*PROGRAM, "--help"], env=_environment()) for _turn in range(TURNS)]
    return Measured(statistics.median(run.seconds for run in seconds), _scan(lab.folder), costs)


def _doctor(lab: Laboratory, size: int, forks: str) -> tuple[Path, Run]:
    """Examine a node under many names. Return the inventory of the names as well."""
    path = lab.folder / f"names-{size}.json"
    path.write_text(json.dumps(_inventory(lab.inventory, size)))
    run = _run(lab.folder, path, *PROGRAM, "doctor", forks, "--json")
    hosts = json.loads(run.output)["hosts"]
    _check(run, sum(one["observed"] for one in hosts) == size)
    return path, run


def _environment() -> dict[str, str]:
    paths = os.pathsep.join([str(PROJECT / "src"), str(INSTALLED)])
    return {**os.environ, "PYTHONPATH": paths}


def _run(folder: Path, inventory: Path, *command: str) -> Run:
    return installed.run(command, inventory, folder, PYTHONPATH=_environment()["PYTHONPATH"])


def _check(run: Run, is_good: bool) -> None:
    if not is_good:
        raise SystemExit(f"failed: {run.output}")


def _inventory(path: Path, size: int) -> dict[str, Any]:
    """Return the laboratory's inventory with many names of one node."""
    inventory: dict[str, Any] = yaml.safe_load(path.read_text())
    group = inventory["gpu_nodes"]
    group["hosts"] = {f"name-{number:03}": group["hosts"][NODE] for number in range(size)}
    return inventory


def _scan(folder: Path) -> float:
    """Return the seconds of a scan. The servers end each connection after their first words."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    with _servers() as port:
        command = [*PROGRAM, "scan", "--json", f"--port={port}", f"{NETWORK}.0/24"]
        run = installed.timed(command, env={**_environment(), "HOME": str(home)})
    machines = [one["address"] for one in json.loads(run.output)["machines"]]
    _check(run, machines == [*ANSWER])
    return run.seconds


@contextmanager
def _servers() -> Iterator[int]:
    """Let the addresses answer as an SSH server does, on one port. Return the port."""
    first = socket.create_server((ANSWER[0], 0))
    port = first.getsockname()[1]
    servers = [first, *(socket.create_server((address, port)) for address in ANSWER[1:])]

    def serve(server: socket.socket) -> None:
        while True:
            try:
                connection, _peer = server.accept()
            except OSError:
                return
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.2p1\r\n")

    threads = [threading.Thread(target=serve, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield port
    finally:
        for server in servers:
            server.shutdown(socket.SHUT_RDWR)
            server.close()
        for thread in threads:
            thread.join()


def describe(measured: Measured) -> Section:
    small, large = (
        next(one for one in measured.costs if one.program != "ansible" and one.machines == size)
        for size in (SIZES[0], SIZES[-1])
    )
    names = f"metal-gpu doctor on {large.machines} names"
    goals = (
        Goal("metal-gpu --help", measured.help_s, HELP_LIMIT_S, "s"),
        Goal("metal-gpu scan of 254 addresses", measured.scan_s, SCAN_LIMIT_S, "s"),
        Goal(f"processor time for each, {names}", large.cpu_s / large.machines, CPU_LIMIT_S, "s"),
        Goal(
            f"peak memory, {names}, relative to {small.machines}",
            large.peak_mib / small.peak_mib,
            GROWTH_LIMIT,
        ),
    )
    rows = tuple(
        (
            f"`{one.program}`",
            str(one.machines),
            number(one.cpu_s / one.machines, "s"),
            f"{one.peak_mib:.0f} MiB",
            number(one.seconds, "s"),
        )
        for one in measured.costs
    )
    return Section(
        "The command",
        goals,
        TEXT,
        ("program", "names", "processor time for each", "peak memory", "time"),
        rows,
        (
            "metal-gpu --help",
            f"metal-gpu scan --port PORT {NETWORK}.0/24",
            f"metal-gpu doctor --forks {FORKS} --json --inventory names.json",
            f"ansible gpu_nodes --become --module-name metal.gpu.node_info --forks {FORKS}",
        ),
    )
