# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Kubernetes distributions that contain their own kubelet and containerd. No I/O.

Source: tests/recorded/distributions.yml, which a test compares with these tables.
"""

from __future__ import annotations

from posixpath import basename, dirname, join
from typing import TYPE_CHECKING, NamedTuple, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping


class Distribution(TypedDict):
    """The Kubernetes distribution that contains the kubelet, and its unit."""

    name: str
    unit: str


class Home(NamedTuple):
    """Where a supported distribution keeps its containerd and its kubelet."""

    name: str
    units: tuple[str, ...]
    programs: str  # the folder of its containerd
    config: str  # of its containerd
    socket: str
    kubeconfig: str
    version: str  # the argument that prints its version, which is that of its kubelet
    templates: tuple[str, ...] = ()  # beside the configuration; the first one that exists counts
    # It finds the NVIDIA runtimes in its PATH when it starts, and writes them into the file.
    detects_runtimes: bool = False
    # The folder of drop-ins that it watches. A change there restarts its containerd.
    watched: str | None = None
    managed: str | None = None  # first line of a file that it generates; None: it always does


# The newer format first. Source: k3s, pkg/agent/containerd/config.go.
_TEMPLATES = ("config-v3.toml.tmpl", "config.toml.tmpl")

HOMES = (
    Home(
        "k3s",
        ("k3s.service", "k3s-agent.service"),
        "/var/lib/rancher/k3s/data/current/bin",
        "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        "/run/k3s/containerd/containerd.sock",
        "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
        "--version",
        templates=_TEMPLATES,
        detects_runtimes=True,
    ),
    Home(
        "RKE2",
        ("rke2-server.service", "rke2-agent.service"),
        "/var/lib/rancher/rke2/bin",
        "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
        "/run/k3s/containerd/containerd.sock",
        "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
        "--version",
        templates=_TEMPLATES,
        detects_runtimes=True,
    ),
    Home(
        "k0s",
        ("k0scontroller.service", "k0sworker.service"),
        "/var/lib/k0s/bin",
        "/etc/k0s/containerd.toml",
        "/run/k0s/containerd.sock",
        "/var/lib/k0s/kubelet.conf",
        "version",
        watched="/etc/k0s/containerd.d",
        managed="# k0s_managed=true",
    ),
)
# Distributions that the roles refuse, by the unit that runs their kubelet.
UNSUPPORTED = {"snap.microk8s.daemon-kubelite.service": "MicroK8s"}
UNITS = {**{unit: home.name for home in HOMES for unit in home.units}, **UNSUPPORTED}

# The program that a distribution looks for when it starts.
RUNTIME = "/usr/bin/nvidia-container-runtime"


def distribution(
    units: Mapping[str, Mapping[str, str]], kubelet_unit: str, *, has_kubelet: bool
) -> Distribution | None:
    """Return name and unit of the distribution that runs the kubelet; None if kubelet.service does.

    A stopped distribution counts only if there is no other kubelet.
    """
    if units.get(kubelet_unit, {}).get("ActiveState") == "active":
        return None
    there = [unit for unit in UNITS if units.get(unit, {}).get("LoadState") == "loaded"]
    active = [unit for unit in there if units[unit].get("ActiveState") == "active"]
    found = next(iter(active or ([] if has_kubelet else there)), None)
    return {"name": UNITS[found], "unit": found} if found else None


def home_of(unit: str) -> Home | None:
    """Return the home of the distribution with this unit; None if the roles refuse it."""
    return next((home for home in HOMES if unit in home.units), None)


def manages(home: Home, text: str | None) -> bool:
    """Return whether a distribution generates its configuration file, given the text of it."""
    return home.managed is None or text is None or text.partition("\n")[0] == home.managed


def templates(home: Home, config: str) -> list[str]:
    """Return the paths of the templates from which a distribution generates a configuration."""
    return [join(dirname(config), name) for name in home.templates]


def kubeconfig(home: Home, config: str) -> str:
    """Return the kubelet's kubeconfig, which is in the data folder with the configuration.

    An admin can move that folder (--data-dir).
    """
    inside = home.config.rpartition("/agent/")[2]
    data = config[: -len(inside)] if inside != home.config and config.endswith(inside) else ""
    return join(data, basename(home.kubeconfig)) if data else home.kubeconfig
