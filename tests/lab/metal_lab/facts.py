# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts of a laboratory: what a project may know about it. README.md explains them.

The template of the inventory gets them as its variables. `lab facts` prints them as JSON.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2

from metal_lab import (
    debian_driver,
    mirror,
    node_image,
    nodes,
    pod_images,
    registry,
    rpm_mirror,
    ubuntu,
    versions,
)
from metal_lab.description import Description, Node, gpus
from metal_lab.state import State

MIRROR_PORT = 8080


def collect(
    state: State,
    description: Description,
    published: Path,
    fingerprint: str,
    mirror_tools: Path | None = None,
) -> dict[str, Any]:
    """Return the facts. `published` is the folder of the mirror with the key `fingerprint`."""
    url = f"http://{state.gateway}:{MIRROR_PORT}"
    repositories: list[mirror.Repository | rpm_mirror.Repository] = [
        *mirror.repositories(fingerprint)
    ]
    if description.redhat:
        repositories += rpm_mirror.repositories(fingerprint)
    return {
        "name": state.name,
        "folder": str(state.folder),
        "label": state.label,
        "gateway": state.gateway,
        "kubeconfig": str(state.kubeconfig),
        "kubectl": {
            "program": str(Path(state.programs) / "kubectl"),
            "environment": nodes.kubectl_environment(state),
        },
        "processes": {name: process.pid for name, process in state.processes.items()},
        "ssh": {
            "user": nodes.USER,
            "key": str(state.ssh_key),
            "known_hosts": str(state.known_hosts),
        },
        "nodes": {node.name: _node(state, node) for node in description.nodes},
        "mirror": {
            "url": url,
            "fingerprint": fingerprint,
            "repositories": {each.name: _repository(url, each) for each in repositories},
            "untrusted": {
                each.name: _repository(url, each) for each in (mirror.EXPIRED, mirror.STRANGER)
            },
            "files": _files(url, published),
        },
        "registry": registry.facts(state),
        "mirror_tools": str(mirror_tools or ""),
        "parts": list(description.parts),
        "drivers": list(description.drivers),
        "versions": {
            "kubernetes": versions.KUBERNETES,
            "containerd": versions.CONTAINERD,
            "docker": versions.DOCKER,
            "cri_dockerd": versions.CRI_DOCKERD,
            "crio": versions.CRIO,
            "container_toolkit": versions.CONTAINER_TOOLKIT,
            "device_plugin": versions.DEVICE_PLUGIN,
            "debian_driver": debian_driver.version(),
            "ubuntu": ubuntu.record()["archives"],
        },
        "images": {
            "busybox": pod_images.BUSYBOX_IMAGE,
            "cuda": pod_images.CUDA_IMAGE,
            "device_plugin": pod_images.PLUGIN_IMAGE,
            "nvbandwidth": pod_images.NVBANDWIDTH_IMAGE,
            "pause": pod_images.PAUSE_IMAGE,
            "vectoradd": pod_images.VECTORADD_IMAGE,
            "vectoradd_cuda11": pod_images.OLD_VECTORADD_IMAGE,
            "vectoradd_cuda10": pod_images.OLDEST_VECTORADD_IMAGE,
        },
    }


def _node(state: State, node: Node) -> dict[str, Any]:
    return {
        "address": state.nodes[node.name],
        "ssh": nodes.ssh_command(state, node.name),
        "container": state.container(node.name),
        "os": node.os,
        "machine": node.machine,
        "gpus": gpus(node),
        "engine": node_image.program(node.engine),
        "images": node.images,
        "cgroup_driver": nodes.cgroup_driver(node),
        "scenes": list(node.scenes),
        "vars": dict(node.vars),
    }


def _repository(url: str, repository: mirror.Repository | rpm_mirror.Repository) -> dict[str, str]:
    return {"url": f"{url}/{repository.path}", "key": f"{url}/{repository.key}"}


def _files(url: str, published: Path) -> dict[str, dict[str, str]]:
    """Return what upstream publishes as plain files: packages by part, and .run files by name."""
    found = {
        name: deb
        for name, place in mirror.FILES.items()
        for deb in (published / place).glob("*.deb")
    }
    found |= {run.name: run for run in (published / mirror.RUN_FILES_PLACE).glob("*/*.run")}
    return {
        name: {
            "url": f"{url}/{file.relative_to(published)}",
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        }
        for name, file in found.items()
    }


def render(template: Path, facts: dict[str, Any]) -> str:
    """Return a text from a Jinja template. If the template is wrong, exit with the reason."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # YAML, not HTML
    )
    try:
        return environment.get_template(template.name).render(facts)
    except jinja2.TemplateError as error:
        raise SystemExit(f"{template}: {error}; to list the facts: lab facts") from error


def load(state: State) -> dict[str, Any]:
    """Return the facts of a laboratory that was started."""
    facts: dict[str, Any] = json.loads(state.facts.read_text())
    return facts
