# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The containerd of k3s (gpu-1) and k0s (gpu-2): its program, its configuration, what it reads."""

from __future__ import annotations

from typing import Any

K0S_DROP_IN = "/etc/k0s/containerd.d/99-metal-gpu.toml"
K3S = "/var/lib/rancher/k3s/agent/etc/containerd"
CONFIGS = {"gpu-1": f"{K3S}/config.toml", "gpu-2": "/etc/k0s/containerd.toml"}
_PROGRAMS = {
    "gpu-1": "/var/lib/rancher/k3s/data/current/bin/containerd",
    "gpu-2": "/var/lib/k0s/bin/containerd",
}


def runtimes(laboratory: Any, node: str) -> str:
    """Return the merged configuration of the distribution's containerd."""
    command = f"{_PROGRAMS[node]} --config {CONFIGS[node]} config dump"
    return str(laboratory.host(node).check_output(command))
