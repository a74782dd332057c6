# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Kubernetes distributions that contain their own kubelet and containerd.

Source: tests/recorded/distributions.yml, which a test compares with these tables.
"""

from __future__ import annotations

import re
from posixpath import basename, dirname, join
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.read import systemd

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
    # At each start, it writes there which engine its kubelet uses; None: it does not.
    crictl: str | None = None
    cri_dockerd: str | None = None  # the socket of the cri-dockerd in it


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
        crictl="/var/lib/rancher/k3s/agent/etc/crictl.yaml",
        cri_dockerd="/run/k3s/cri-dockerd/cri-dockerd.sock",
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
        crictl="/var/lib/rancher/rke2/agent/etc/crictl.yaml",
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
UNSUPPORTED = {
    "snap.microk8s.daemon-kubelite.service": "MicroK8s",
    "snap.microk8s.daemon-kubelet.service": "MicroK8s",
    "snap.k8s.kubelet.service": "Canonical Kubernetes",
    "snap.kubelet.daemon.service": "the snap kubelet, such as Charmed Kubernetes",
    "snap.kubelet-eks.daemon.service": "the snap kubelet-eks",
}
UNITS = {**{unit: home.name for home in HOMES for unit in home.units}, **UNSUPPORTED}

# The installer of k3s takes another name for the unit (INSTALL_K3S_NAME), with this prefix. Other
# units can have it, too, so what they start counts.
NAMED = "k3s-*.service"
NAMED_FILES = f"/etc/systemd/system/{NAMED}"
_NAMED = re.compile(r"k3s-.+\.service")
_NAMED_STARTS = ("server", "agent")

# Control groups of a k3s that a user runs. They exist while it runs.
ROOTLESS_PATTERNS = (
    "/sys/fs/cgroup/user.slice/user-*.slice/user@*.service/app.slice/k3s-rootless.service",
    "/sys/fs/cgroup/user.slice/user-*.slice/user@*.service/k3s-rootless.service",
)
_ROOTLESS = re.compile(r"/user@(?P<user>\d+)\.service/")

_ENDPOINT = re.compile(r"^runtime-endpoint:[ \t]*[\"']?(?P<endpoint>[^\s\"'#]+)", re.MULTILINE)

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
    named = {unit: "k3s" for unit, found in units.items() if _is_named(unit, found)}
    names = {**named, **UNITS}
    there = [unit for unit in names if units.get(unit, {}).get("LoadState") == "loaded"]
    active = [unit for unit in there if units[unit].get("ActiveState") == "active"]
    found = next(iter(active or ([] if has_kubelet else there)), None)
    return {"name": names[found], "unit": found} if found else None


def _is_named(unit: str, properties: Mapping[str, str]) -> bool:
    """Whether a unit is one of k3s under another name, by the command that it starts."""
    if not _NAMED.fullmatch(unit):
        return False
    words = systemd.parse_command(properties, {}, "k3s")
    return len(words) > 1 and basename(words[0]) == "k3s" and words[1] in _NAMED_STARTS


def rootless(found: list[str]) -> Distribution | None:
    """Return the k3s that a user runs, given its control groups.

    It is none of the node: every user can start a unit of this name, for any program.
    """
    match = _ROOTLESS.search(found[0]) if found else None
    if match is None:
        return None
    return {"name": "rootless k3s", "unit": f"k3s-rootless.service of the user {match['user']}"}


def home_of(unit: str) -> Home | None:
    """Return the home of the distribution with this unit; None if the roles refuse it."""
    if _NAMED.fullmatch(unit):
        unit = "k3s.service"
    return next((home for home in HOMES if unit in home.units), None)


def manages(home: Home, text: str | None) -> bool:
    """Return whether a distribution generates its configuration file, given the text of it."""
    return home.managed is None or text is None or text.partition("\n")[0] == home.managed


def templates(home: Home, config: str) -> list[str]:
    """Return the paths of the templates from which a distribution generates a configuration."""
    return [join(dirname(config), name) for name in home.templates]


def crictl(home: Home, config: str) -> str | None:
    """Return the file in which a distribution names the engine of its kubelet."""
    return home.crictl and join(dirname(dirname(config)), basename(home.crictl))


def parse_crictl(text: str) -> str | None:
    """Return the socket of the engine in a configuration of crictl."""
    match = _ENDPOINT.search(text)
    return match["endpoint"] if match else None


def kubeconfig(home: Home, config: str) -> str:
    """Return the kubelet's kubeconfig, which is in the data folder with the configuration.

    An admin can move that folder (--data-dir).
    """
    inside = home.config.rpartition("/agent/")[2]
    data = config[: -len(inside)] if inside != home.config and config.endswith(inside) else ""
    return join(data, basename(home.kubeconfig)) if data else home.kubeconfig
