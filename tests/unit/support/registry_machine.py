# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Planted nodes with an engine, registries for them, and what an admin has there already."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.read import containerd
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries import (
    plan as registries,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    CHOICES,
    CRIO,
    DOCKER,
    VIRGIN,
    merge,
)
from ansible_collections.metal.gpu.tests.unit.support.carry_out import carry_out, on_disk
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs

PEM = "-----BEGIN CERTIFICATE-----\nMIIB{}\n-----END CERTIFICATE-----\n"
CA = PEM.format("ca")
CLIENT = PEM.format("client")
KEY = "-----BEGIN PRIVATE KEY-----\nMIIBkey\n-----END PRIVATE KEY-----\n"
SECRET = "hunter2-CANARY"
BASIC = "bWU6aHVudGVyMi1DQU5BUlk="
DAEMON_JSON = "/etc/docker/daemon.json"
MIRROR = "https://mirror.example:5000"
OF_NVCR = {
    "host": "nvcr.io",
    "mirrors": [
        {"url": f"{MIRROR}/ngc", "ca": CA, "username": "me", "password": SECRET},
        {"url": "http://second.example"},
    ],
}
OF_ITSELF = {
    "host": "registry.example",
    "ca": CA,
    "client_certificate": CLIENT,
    "client_key": KEY,
    "username": "me",
    "password": SECRET,
}
HUB = {"host": "docker.io", "mirrors": [{"url": MIRROR, "ca": CA}]}
K3S = {
    "name": "k3s",
    "unit": "k3s.service",
    "is_managed": True,
    "detects_runtimes": True,
    "watched": None,
    "template": None,
    "template_lists_runtimes": True,
    "runtime_in_path": True,
    "started_after_runtime": True,
    "former_drop_ins": [],
    "host_containerd": False,
}
RKE2 = {**K3S, "name": "RKE2", "unit": "rke2-agent.service"}
Observe = Callable[[Programs], dict[str, Any]]


def of_containerd(version: str, **registry: Any) -> dict[str, Any]:
    reads_lists = version.startswith("1.") or version.startswith("2.0")
    found = {"folders": [], "mirrors": [], "tls": [], "reads_lists": reads_lists, **registry}
    engine = {"version": version, "registry": found}
    return merge(VIRGIN, {"engines": {"containerd": engine}})


ENGINES = {
    "containerd-1.7": of_containerd("1.7.24"),
    "containerd-2.1": of_containerd("2.1.4"),
    "containerd-2.4": of_containerd("2.4.2"),
    "containerd-set": of_containerd("1.7.24", folders=["/etc/containerd/certs.d"]),
    "docker": DOCKER,
    "crio": CRIO,
    "k3s": merge(VIRGIN, {"engines": {"containerd": {"home": K3S}}}),
    "RKE2": merge(VIRGIN, {"engines": {"containerd": {"home": RKE2}}}),
}


class Machine:
    """A planted node, on which plans are carried out."""

    def __init__(self, root: Path, observe: Observe, engine: str) -> None:
        self.root = root
        self._observe = observe
        self._node = ENGINES[engine]
        self.programs = Programs({})
        self.mirrors: list[str] = []  # which a Docker that runs uses

    def node(self) -> dict[str, Any]:
        seen = self._observe(self.programs)
        docker = {"config": {"path": DAEMON_JSON}, "mirrors": self.mirrors}
        node = merge(self._node, {"engines": {"docker": docker}})
        files = self.root.glob("etc/containerd/*.toml")
        named = [containerd.registry_folders(tomllib.loads(file.read_text())) for file in files]
        if folders := [one for text in named if text for one in text.split(":")]:
            registry = {"folders": folders}
            node = merge(node, {"engines": {"containerd": {"registry": registry}}})
        return {**node, "registries": seen["registries"], "ours": seen["ours"]}

    def plan(self, hosts: list[Any], **desired: Any) -> dict[str, Any]:
        wanted = {**CHOICES["registries"], "hosts": hosts, "restart_ok": True, **desired}
        found: dict[str, Any] = registries.plan(self.node(), wanted)
        return found

    def run(self, hosts: list[Any], **desired: Any) -> dict[str, Any]:
        planned = self.plan(hosts, **desired)
        assert planned["refusals"] == []
        carry_out(self.root, planned, hosts)
        if any(step["slug"] == "reload" for step in planned["steps"]):
            content = json.loads(self.text(DAEMON_JSON))
            self.mirrors = [one.rstrip("/") for one in content["registry-mirrors"]]
        return planned

    def text(self, path: str) -> str:
        return on_disk(self.root, path).read_text()

    def tree(self) -> dict[str, tuple[int, str]]:
        return {
            str(one.relative_to(self.root)): (
                one.stat().st_mode & 0o777,
                one.read_text() if one.is_file() else "",
            )
            for one in sorted(self.root.rglob("*"))
            if "var/lib/metal-gpu" not in str(one) and one.name not in ("var", "lib", "metal-gpu")
        }


WANTED = {
    "docker": [HUB, OF_ITSELF],
    **{one: [OF_NVCR, OF_ITSELF] for one in ENGINES if one != "docker"},
}
# Files that an admin had before.
OF_ADMIN = {
    "/etc/containerd/config.toml": "version = 2 # mine\n",
    "/etc/containerd/certs.d/nvcr.io/hosts.toml": (
        '# mine\n[host."https://own.example"]\n  capabilities = ["pull"]\n'
    ),
    "/var/lib/kubelet/config.json": '{"auths": {"quay.io": {"auth": "eA=="}}}\n',
}
REGISTRIES_YAML = "# ours\nmirrors:\n  nvcr.io:\n    endpoint:\n      - https://own.example\n"
ADMIN = {
    "docker": {
        "/etc/docker/daemon.json": '{\n\t"registry-mirrors": ["https://own.example/"]\n}\n',
        "/root/.docker/config.json": '{"auths": {"quay.io": {"auth": "eA=="}}, "psFormat": "x"}',
    },
    "crio": {
        "/etc/containers/registries.conf": 'unqualified-search-registries = ["docker.io"]\n',
        "/etc/crio/crio.conf.d/10-crio.conf": "[crio.image]\n",
    },
    "k3s": {"/etc/rancher/k3s/registries.yaml": REGISTRIES_YAML},
    "RKE2": {"/etc/rancher/rke2/registries.yaml": REGISTRIES_YAML},
    **{one: OF_ADMIN for one in ENGINES if one.startswith("containerd")},
}
