# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Read what a Kubernetes distribution runs below its unit: its containerd and its kubelet.

Both functions do I/O. The processes are the first source: only they show a moved data folder, and
when they started. k3s is one file with many names: its containerd is a link beside that file.

Source: proc_pid_stat(5), field 22 (starttime); proc_pid_environ(5).
"""

from __future__ import annotations

import os
from posixpath import basename, dirname, join
from typing import TYPE_CHECKING, TypedDict, cast

from ansible_collections.metal.gpu.plugins.module_utils.probe.services import find_process
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    containerd,
    distributions,
    kubelet,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import (
    hide_values,
    parse_words,
    value_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading
    from ansible_collections.metal.gpu.plugins.module_utils.probe.raw_data import FlagData
    from ansible_collections.metal.gpu.plugins.module_utils.probe.services import Process
    from ansible_collections.metal.gpu.plugins.module_utils.read.distributions import (
        Distribution,
        Home,
    )

_ADDRESS_FLAGS = ("--address", "-a")


class ContainerdData(TypedDict):
    """The containerd of a distribution."""

    name: str
    unit: str
    path: str | None  # None: not found
    config: str
    socket: str
    started_s: float | None  # since the boot; None: it does not run
    search_path: list[str] | None  # the PATH of the distribution's process; None: unknown


class KubeletData(TypedDict):
    """The kubelet of a distribution, which can be a part of another process."""

    distribution: Distribution
    path: str | None
    flags: list[FlagData]
    kubeconfig: str | None
    endpoint: str | None  # of its engine, as of its last start; None: unknown


def find_distribution(reading: Reading) -> Distribution | None:
    """Return the distribution that runs the kubelet of this node."""
    has_kubelet = reading.find_program("kubelet") is not None
    return distributions.distribution(reading.units, kubelet.UNIT, has_kubelet=has_kubelet)


def find_home(reading: Reading) -> Home | None:
    found = find_distribution(reading)
    return distributions.home_of(found["unit"]) if found else None


def starter(reading: Reading) -> str:
    """Return the program that the distribution's unit starts, such as /usr/local/bin/k3s."""
    found = find_distribution(reading)
    written = reading.services[found["unit"]].starter if found else None
    return written or (found["name"].lower() if found else "")


def read_containerd(reading: Reading) -> ContainerdData | None:
    """Return the containerd of the distribution; None on a node without one."""
    found, home = find_distribution(reading), find_home(reading)
    if found is None or home is None:
        return None
    root, properties = reading.node.root, reading.units.get(found["unit"], {})
    process = find_process(root, properties, "containerd")
    flags = parse_words(process.words) if process else ()
    return {
        **found,
        "path": _containerd_path(root, home, process),
        "config": value_of(flags, *containerd.CONFIG_FLAGS) or home.config,
        "socket": value_of(flags, *_ADDRESS_FLAGS) or home.socket,
        "started_s": _read_start_s(root, process.pid) if process else None,
        "search_path": _read_search_path(root, properties.get("MainPID", "0")),
    }


def read_kubelet(reading: Reading) -> KubeletData | None:
    """Return the kubelet of the distribution; None on a node without one."""
    found, home = find_distribution(reading), find_home(reading)
    if found is None:
        return None
    properties = reading.units.get(found["unit"], {})
    process = find_process(reading.node.root, properties, "kubelet")
    flags = hide_values(parse_words(process.words) if process else (), kubelet.FLAGS)
    engine = read_containerd(reading)
    return {
        "distribution": found,
        "path": process.program if process else None,
        "flags": [cast("FlagData", flag._asdict()) for flag in flags],
        "kubeconfig": distributions.kubeconfig(home, engine["config"]) if home and engine else None,
        "endpoint": _read_endpoint(reading, home, engine) if home and engine else None,
    }


def _read_endpoint(reading: Reading, home: Home, engine: ContainerdData) -> str | None:
    """Return the engine that the kubelet uses: without its own containerd, only a file has it."""
    path = distributions.crictl(home, engine["config"])
    if path is None or engine["started_s"] is not None:
        return None
    return distributions.parse_crictl(reading.unit_files.read(path) or "")


def _containerd_path(root: Path, home: Home, process: Process | None) -> str | None:
    """Return its containerd. No other containerd of the node is asked in its place."""
    running = process.program if process else None
    if running and basename(running) != "containerd":
        running = join(dirname(running), "containerd")
    candidates = (running, join(home.programs, "containerd"))
    return next((path for path in candidates if path and (root / path[1:]).is_file()), None)


def _read_start_s(root: Path, pid: str) -> float | None:
    """Return when a process started, in seconds since the boot."""
    try:
        # The second field is the program's name in parentheses, which can contain anything.
        fields = (root / "proc" / pid / "stat").read_text().rpartition(")")[2].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):  # it has ended
        return None


def _read_search_path(root: Path, pid: str) -> list[str] | None:
    """Return the PATH of a process. Its other variables can be secret, and stay on the node."""
    try:
        environment = (root / "proc" / pid / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return None
    values = [one[5:] for one in environment.split("\0") if one.startswith("PATH=")]
    return values[-1].split(":") if values else None
