# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes on which nothing is left to do: what the module hands over, and what the cluster answers.

For tests that take something away and ask whether it is missed.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.probe import collect
from ansible_collections.metal.gpu.plugins.module_utils.read import fabric
from ansible_collections.metal.gpu.plugins.module_utils.verdict.reconcile import reconcile
from ansible_collections.metal.gpu.plugins.modules import config_document, node_info
from ansible_collections.metal.gpu.plugins.plugin_utils.components import by_name
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import interpret
from ansible_collections.metal.gpu.plugins.plugin_utils.components.planning import PLANNERS
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.history import History, remember
from ansible_collections.metal.gpu.tests.unit.support import smi_xml
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import (
    parse_scene,
    plant,
    recording,
)

DRIVER = "580.178.04"
REPOSITORY = {
    "repository": True,
    "repository_url": "https://mirror.example/",
    "repository_suite": "/",
    "repository_key": "https://mirror.example/key.asc",
    "repository_fingerprint": "0" * 40,
    "now": datetime(2026, 11, 22, tzinfo=UTC),
}
DESIRED: dict[str, dict[str, Any]] = {
    "preflight": {"engine": "auto", "gpu_count": None, "kubelet": True},
    "nvidia_driver": {
        "source": "auto",
        "version": DRIVER,
        "branch": 0,
        "flavour": "auto",
        "reboot_ok": None,
        "runfile_url": "",
        "runfile_sha256": "",
        "switch_ok": False,
        "module_parameters": {},
        "peermem": False,
        **REPOSITORY,
    },
    "containerd": {"version": "2.4.2", **REPOSITORY},
    "docker_ce": {
        "version": "29.8.1",
        "containerd_version": "2.4.2",
        "replace_distribution": False,
        "v1_removal_ok": False,
        "packages": [],
        "daemon_options": {},
        "proxy": {},
        "restart_ok": False,
        "users": [],
        "cri_dockerd_url": "https://mirror.example/cri-dockerd.deb",
        "cri_dockerd_checksum": "sha256:00",
        **REPOSITORY,
    },
    "nvidia_container_runtime": {
        "engine": "auto",
        "engine_is_new": False,
        "cri_is_planned": False,
        "driver_is_planned": False,
        "upgrade_ok": False,
        "restart_ok": False,
        "version": "1.20.1",
        "default": None,
        "envvar": "auto",
        "cdi": True,
        **REPOSITORY,
    },
    "kubelet_device_plugins": {},
}

_UNIT = """\
Id={name}
LoadState=loaded
ActiveState=active
SubState=running
Result=success
UnitFileState=enabled
ActiveEnterTimestampMonotonic=1000000
NeedDaemonReload=no
"""
_NO_UNIT = "Id={name}\nLoadState=not-found\nActiveState=inactive\nSubState=dead\n"
_PACKAGES = {
    "nvidia-driver-cuda": f"{DRIVER}-1",
    "nvidia-kernel-dkms": f"{DRIVER}-1",
    "nvidia-kernel-open-dkms": f"{DRIVER}-1",
    "nvidia-persistenced": f"{DRIVER}-1",
    "libcuda1": f"{DRIVER}-1",
    "nvidia-container-toolkit": "1.20.1-1",
    "nvidia-container-toolkit-base": "1.20.1-1",
    "libnvidia-container-tools": "1.20.1-1",
    "libnvidia-container1": "1.20.1-1",
    "containerd.io": "2.4.2-1~debian.12~bookworm",
}
_DOCKER_PACKAGES = {
    "docker-ce": "5:29.8.1-1~debian.12~bookworm",
    "docker-ce-cli": "5:29.8.1-1~debian.12~bookworm",
    "cri-dockerd": "0.4.3~3-0~debian-bookworm",
}
_SWITCHES = {
    f"/sys/bus/pci/devices/0000:{bus}:00.0/{name}": f"{value}\n"
    for bus in ("05", "06", "07", "08")
    for name, value in {"vendor": "0x10de", "device": "0x22a3", "class": "0x068000"}.items()
} | {
    "/etc/systemd/system/nvidia-fabricmanager.service.d/metal-gpu.conf": (
        "# BEGIN managed by Ansible, role metal.gpu.nvidia_driver\n[Unit]\n"
        "Before=kubelet.service docker.service\n"
        "# END managed by Ansible, role metal.gpu.nvidia_driver\n"
    )
}
_PROGRAM_FILES = (
    "/usr/bin/nvidia-container-runtime",
    "/usr/bin/nvidia-container-runtime-hook",
    "/usr/bin/nvidia-cdi-hook",
    "/usr/bin/nvidia-ctk",
    "/usr/bin/nvidia-smi",
    "/usr/bin/nvidia-persistenced",
)
_DOCKER_INFO = {
    "ServerVersion": "29.8.1",
    "Runtimes": {
        "io.containerd.runc.v2": {"path": "runc"},
        "nvidia": {"path": "nvidia-container-runtime"},
        "runc": {"path": "runc"},
    },
    "DefaultRuntime": "nvidia",
    "CgroupDriver": "systemd",
    "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
    "LiveRestoreEnabled": False,
    "DockerRootDir": "/var/lib/docker",
}
_STATES = "/var/lib/metal-gpu/config_document"
_POD = "6746720e42b7\tk8s_POD_busy_default_5c4fc37b_0\tUp 3 days\t\n"
_GPU = """\
Model: \t\t {name}
GPU UUID: \t {uuid}
Bus Location: \t {address}
Device Minor: \t {minor}
"""


# The generation, the branch, and what the machine adds.
_REPORTS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "15f8": ("pascal", 580, {}),
    "2330": ("hopper", 580, {"*": smi_xml.COMPLETED}),
}

ROLES = tuple(DESIRED)
DRIVER_DESIRED = DESIRED["nvidia_driver"]


class Node(NamedTuple):
    """Everything that a verdict is made of."""

    raw: dict[str, Any]  # what metal.gpu.node_info hands over from the node
    roles: tuple[str, ...]  # whose plans count on it
    declared: int | None
    cluster: dict[str, Any] | None
    smoke: dict[str, Any] | None

    def copy(self) -> Node:
        return copy.deepcopy(self)

    def observed(self) -> dict[str, Any]:
        return interpret(self.raw)

    def plans(
        self, node: dict[str, Any], state: str = "present", roles: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Return the plan of each role, by its name."""
        shared = {"host": "gpu-1", "state": state}
        return {
            role: PLANNERS[role](node, {**shared, **DESIRED[role]}) for role in roles or self.roles
        }

    def judge(self, node: dict[str, Any]) -> dict[str, Any]:
        """Return the verdict on an observation."""
        plans = by_name(self.plans(node))
        return reconcile(
            "gpu-1", node, self.declared, self.cluster, self.smoke, plans=by_name(plans)
        )

    def codes(self) -> list[str]:
        """Observe, plan and judge, as metal.gpu.verify does; return what is found."""
        return [found["code"] for found in self.judge(self.observed())["findings"]]


def containerd_node() -> Node:
    """Return a node with two P100 and containerd, whose configuration file a role has edited."""
    scene = parse_scene(recording("nodes/healthy-containerd.txt"))
    path = "/etc/containerd/config.toml"
    original = scene[path].partition("[plugins")[0]
    place = config_document.Place(path, "metal.gpu.nvidia_container_runtime", _STATES)
    scene[place.history] = remember(History(original=original, written=scene[path], before=""))
    dump = (
        recording("containerd/dump-2.4.2-nvidia.toml")
        .replace("SystemdCgroup = false", "SystemdCgroup = true")
        # The file of this node leaves the default as it is.
        .replace("default_runtime_name = 'nvidia'", "default_runtime_name = 'runc'")
    )
    return _node(
        "query-p100x2.txt",
        "15f8",
        scene,
        {
            "containerd --config /etc/containerd/config.toml config dump": (0, dump, ""),
        },
        "containerd",
    )


def docker_node() -> Node:
    """Return a node with eight H100 behind four NVSwitches, Docker Engine and cri-dockerd."""
    return _node(
        "query-h100x8.txt",
        "2330",
        {**parse_scene(recording("nodes/healthy-docker.txt")), **_SWITCHES},
        {
            "systemctl show --property=Id,Names": (0, _UNIT.format(name=fabric.MANAGER), ""),
            "containerd --config": (0, "", ""),
            "containerd config default": (0, "", ""),
            "dockerd --version": (0, "Docker version 29.8.1, build 1234567\n", ""),
            "docker info": (0, json.dumps(_DOCKER_INFO) + "\n", ""),
            "docker ps": (0, _POD, ""),
            "cri-dockerd --version": (0, "cri-dockerd 0.4.3 (1234567)\n", ""),
            "getent": (0, "docker:x:998:\n", ""),
        },
        "docker_ce",
    )


def _node(
    query: str,
    device: str,
    scene: dict[str, str],
    answers: dict[str, tuple[int, str, str]],
    engine: str,
) -> Node:
    rows = recording(f"nvidia_smi/{query}")
    gpus = [_gpu(line) for line in rows.splitlines()]
    texts = {**parse_scene(recording("nodes/healthy.txt")), **scene}
    for number, gpu in enumerate(gpus):
        folder = f"/sys/bus/pci/devices/{gpu['address']}"
        attributes = {"vendor": "0x10de", "device": f"0x{device}", "class": "0x030200"}
        texts |= {f"{folder}/{name}": f"{value}\n" for name, value in attributes.items()}
        path = f"/proc/driver/nvidia/gpus/{gpu['address']}/information"
        texts[path] = _GPU.format(**gpu, minor=number)
    units = ["kubelet.service", "containerd.service", "nvidia-persistenced.service"]
    packages = dict(_PACKAGES)
    if engine == "docker_ce":
        units += ["docker.service", "cri-docker.service", "cri-docker.socket"]
        packages |= {**_DOCKER_PACKAGES, "nvidia-fabricmanager": f"{DRIVER}-1"}
    shown = [_UNIT.format(name=name) for name in units]
    shown += [_NO_UNIT.format(name=name) for name in collect.units() if name not in units]
    listed = (f"{name}\t{version}\tinstalled\thold\tamd64\n" for name, version in packages.items())
    programs = Programs(
        {
            **answers,
            "systemctl show": (0, "\n".join(shown), ""),
            "dpkg-query": (0, "".join(listed), ""),
            "modinfo": (0, f"{DRIVER}\n", ""),
            "dmesg": (0, recording("kernel_log/everyday.txt"), ""),
            "nvidia-smi --query": (0, rows, ""),
            "sh -c": (0, smi_xml.report(gpus, *_REPORTS[device]), ""),
            "nvidia-ctk": (0, "NVIDIA Container Toolkit CLI version 1.20.1\n", ""),
            "containerd --version": (
                0,
                "containerd github.com/containerd/containerd/v2 2.4.2 \n",
                "",
            ),
            "kubelet": (0, "Kubernetes v1.37.1\n", ""),
        }
    )
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        plant(root, texts)
        for path in ("run/systemd/system", "lib/modules/6.1.0-26-amd64/build", "sys/fs/cgroup"):
            (root / path).mkdir(parents=True)
        for path in _PROGRAM_FILES:
            plant(root, {path: ""})
            (root / path[1:]).chmod(0o755)
        raw = node_info.run(
            node_info.Node(root, programs.run, programs.find), ["*"], ["metal-gpu-*"]
        )["raw"]
    # What cannot be planted without root.
    names = ["nvidiactl", "nvidia-uvm", *(f"nvidia{number}" for number in range(len(gpus)))]
    raw["values"]["driver"]["device_files"] = [
        {"path": f"/dev/{name}", "major": 195, "minor": 0, "mode": "0666", "linked": True}
        for name in names
    ]
    raw["modified"] = {}  # these files are younger than the services
    raw["architecture"] = "x86_64"
    return Node(
        json.loads(json.dumps(raw)),  # as it travels
        (
            "preflight",
            "nvidia_driver",
            engine,
            "nvidia_container_runtime",
            "kubelet_device_plugins",
        ),
        len(gpus),
        {
            "state": "ok",
            "capacity": len(gpus),
            "allocatable": len(gpus),
            "expected": len(gpus),
            "ready": True,
            "readiness": "",
            "labels": {},
            "seconds": 0.0,
            "message": "",
            "evidence": [],
        },
        {
            "state": "ok",
            "gpus": len(gpus),
            "uuids": [gpu["uuid"] for gpu in gpus],
            "level": "compute",
            "results": [{"uuid": gpu["uuid"], "ok": True, "error": ""} for gpu in gpus],
            "exchange": None,
            "image": "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0",
            "message": "",
            "reason": "Succeeded",
            "events": [],
            "holders": [],
        },
    )


def _gpu(row: str) -> dict[str, str]:
    cells = row.split(", ")
    return {"uuid": cells[1], "name": cells[2], "address": cells[4].lower()[4:]}
