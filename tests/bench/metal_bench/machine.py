# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine and the versions of a measurement."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import yaml
from installed import PROJECT

from metal_lab import versions

# A measurement of one part changes these, before the next part is measured.
WRITTEN = ("docs/benchmarks.md", "tests/bench/results.yml")
DESCRIPTION = Path(__file__).resolve().parent.parent / "labs" / "containerd.yml"


def read() -> dict[str, str]:
    """Return what a reader needs to know about this machine."""
    cpu = _value("/proc/cpuinfo", "model name") or platform.machine()
    memory_gib = int(_value("/proc/meminfo", "MemTotal").split()[0]) / 2**20
    description = yaml.safe_load(DESCRIPTION.read_text())
    galaxy = yaml.safe_load((PROJECT / "galaxy.yml").read_text())
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{os.cpu_count()} cores ({cpu}), {memory_gib:.0f} GiB of memory",
        "load at the start": f"{os.getloadavg()[0]:.1f} (load average over 1 minute)",
        "system": f"Linux {platform.release()}",
        "collection": f"metal.gpu {galaxy['version']}, commit {_commit()}",
        "controller": f"ansible-core {version('ansible-core')}, "
        f"Python {platform.python_version()}, kubernetes {version('kubernetes')}",
        "nodes": "containers with Debian 12, "
        f"Kubernetes {versions.KUBERNETES}, containerd {versions.CONTAINERD}, "
        f"the distribution's Docker with cri-dockerd {versions.CRI_DOCKERD}, "
        f"NVIDIA driver {description['drivers'][0]}, "
        f"container toolkit {versions.CONTAINER_TOOLKIT}, device plugin {versions.DEVICE_PLUGIN}",
    }


def _commit() -> str:
    """Return the commit of this checkout, with a mark if files of it have changed."""
    changed = _git("status", "--porcelain", "--", ".", *(f":!{path}" for path in WRITTEN))
    return _git("rev-parse", "--short", "HEAD") + (", with changes" if changed else "")


def _git(*words: str) -> str:
    command = ["git", "-C", str(PROJECT), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _value(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _colon, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
