# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The bill of materials: what the wheel needs, and what the collection fetches for nodes.

Neither the wheel nor the archive contains anything of others. So each component is external: a
range of versions where pip, Ansible or the distribution decides, and a version where the
collection's defaults name one. The bill of the same checkout is always the same.

Source: https://cyclonedx.org/docs/1.7/json/ (`isExternal`, `versionRange`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import yaml
from packaging.requirements import Requirement

from ansible_collections.metal.gpu.plugins.module_utils.read.cuda_images import IMAGES
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.packages import (
    CRI_DOCKERD,
)

Component = dict[str, Any]

# The program that a role installs, by the variable with its version.
_PROGRAMS = {
    ("containerd", "containerd_version"): "containerd.io",
    ("crio", "crio_version"): "cri-o",
    ("docker_ce", "docker_ce_version"): "docker-ce",
    ("docker_ce", "docker_ce_containerd_version"): "containerd.io",
    ("nvidia_container_runtime", "nvidia_container_runtime_version"): "nvidia-container-toolkit",
}
_OF_NODES = "metal-gpu:fetched-by"
_SEEN = "metal-gpu:seen-digest"  # of the tag, by others: tests/recorded/images.yml
_EXTRA = "metal-gpu:extra"


def make(root: Path, project: Mapping[str, Any], version: str, time_s: int) -> bytes:
    """Return the bill as a CycloneDX document. `project` is the table of pyproject.toml."""
    components = sorted(
        [*_of_wheel(project), *_of_galaxy(root), *_of_nodes(root)], key=lambda one: one["bom-ref"]
    )
    subject = f"pkg:pypi/{project['name']}@{version}"
    needed = [one["bom-ref"] for one in components]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.7",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(time_s, UTC).isoformat(),
            "component": {
                "type": "application",
                "bom-ref": subject,
                "name": project["name"],
                "version": version,
                "description": project["description"],
                "licenses": [{"expression": project["license"]}],
                "purl": subject,
            },
        },
        "components": components,
        "dependencies": [
            {"ref": subject, "dependsOn": needed},
            *({"ref": reference} for reference in needed),
        ],
    }
    number = uuid5(NAMESPACE_URL, json.dumps(bill, sort_keys=True))
    return json.dumps({**bill, "serialNumber": f"urn:uuid:{number}"}, indent=2).encode() + b"\n"


def _of_wheel(project: Mapping[str, Any]) -> Iterator[Component]:
    for text in project["dependencies"]:
        yield _of_pypi(Requirement(text))
    for extra, texts in project["optional-dependencies"].items():
        for text in texts:
            component = _of_pypi(Requirement(text))
            yield {**component, "scope": "optional", "properties": [_property(_EXTRA, extra)]}


def _of_pypi(needed: Requirement) -> Component:
    purl = f"pkg:pypi/{needed.name.lower()}"
    return _ranged(needed.name, purl, f"vers:pypi/{_constraints(str(needed.specifier))}")


def _of_galaxy(root: Path) -> Iterator[Component]:
    galaxy = yaml.safe_load((root / "galaxy.yml").read_text(encoding="utf-8"))
    for name, specifier in galaxy["dependencies"].items():
        purl = f"pkg:generic/{name}?repository_url=https://galaxy.ansible.com"
        yield _ranged(name, purl, f"vers:generic/{_constraints(specifier)}")


def _of_nodes(root: Path) -> Iterator[Component]:
    """Return programs and images, in the versions of the roles' defaults."""
    found: dict[str, tuple[Component, set[str]]] = {}
    for path in sorted(root.glob("roles/*/defaults/main.yml")):
        role = path.parents[1].name
        defaults = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        for component in _of_role(role, defaults):
            found.setdefault(component["bom-ref"], (component, set()))[1].add(role)
    record = yaml.safe_load((root / "tests/recorded/images.yml").read_text(encoding="utf-8"))
    seen = {row["image"]: row["digest"] for row in record["rows"] if "digest" in row}
    for component, roles in found.values():
        properties = [_property(_OF_NODES, ", ".join(sorted(roles)))]
        image = f"{component['name']}:{component.get('version')}"
        properties += [_property(_SEEN, seen[image])] if image in seen else []
        yield {**component, "properties": properties}


def _of_role(role: str, defaults: Mapping[str, Any]) -> Iterator[Component]:
    for variable, value in defaults.items():
        if (program := _PROGRAMS.get((role, variable))) is not None:
            yield _exact(program, str(value), f"pkg:generic/{program}@{value}", "application")
        elif variable.endswith("_image") and value:
            tag = defaults.get(f"{variable.removesuffix('_image')}_version", "")
            yield _image(f"{value}:{tag}" if tag else value)
    if role == "verify":
        yield from (_image(image.name) for image in IMAGES)
    if role == "docker_ce":
        purl = f"pkg:github/mirantis/cri-dockerd@v{CRI_DOCKERD}"
        yield _exact("cri-dockerd", CRI_DOCKERD, purl, "application")
    if role == "nvidia_driver":  # the system and the GPUs decide: docs/driver.md
        yield _ranged(
            "nvidia-driver", "pkg:generic/nvidia-driver", "vers:generic/*", "device-driver"
        )


def _image(reference: str) -> Component:
    name, _colon, tag = reference.rpartition(":")
    registry, _slash, path = name.partition("/")
    namespace, _slash, last = path.rpartition("/")
    purl = f"pkg:docker/{namespace}/{last}@{tag}?repository_url={registry}"
    return _exact(name, tag, purl, "container")


def _exact(name: str, version: str, purl: str, kind: str) -> Component:
    one = {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
    return {**one, "isExternal": True}


def _ranged(name: str, purl: str, versions: str, kind: str = "library") -> Component:
    one = {"type": kind, "bom-ref": purl, "name": name, "versionRange": versions, "purl": purl}
    return {**one, "isExternal": True}


def _constraints(specifier: str) -> str:
    """Return a specifier of PEP 440 or of Galaxy as constraints of a version range."""
    return "|".join(sorted(part.strip() for part in specifier.split(",") if part)) or "*"


def _property(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}
