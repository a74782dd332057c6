# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a teardown has to restore: recorded before the first run, compared after the last.

usage: footprint.py NAME    writes .lab/NAME/footprint.json
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).resolve().parents[2]
DOCUMENT = PROJECT / "docs/teardown.md"
KINDS = (
    "clusterrolebindings,clusterroles,configmaps,daemonsets,deployments,mutatingadmissionpolicies,"
    "mutatingadmissionpolicybindings,nodes,pods,priorityclasses,runtimeclasses,secrets,"
    "serviceaccounts,services,validatingadmissionpolicies,validatingadmissionpolicybindings"
)

_GROUPS = ("/etc/group", "/etc/group-", "/etc/gshadow", "/etc/gshadow-")


def take(name: str) -> dict[str, Any]:
    """Return what the nodes of a laboratory and its cluster have."""
    inventory = yaml.safe_load((PROJECT / ".lab" / name / "inventory.yml").read_text())
    program = Path(__file__).with_name("footprint_node.py").read_text()
    hosts = list(inventory["gpu_nodes"]["hosts"])

    def look(node: str) -> Any:
        return _lab(name, "ssh", node, "sudo", "python3", "-", stdin=program)

    with ThreadPoolExecutor() as pool:
        nodes = dict(zip(hosts, pool.map(look, hosts), strict=True))
    answer = _lab(name, "kubectl", "get", KINDS, "--all-namespaces", "--output=json")
    return {"nodes": nodes, "cluster": dict(map(_cluster_row, answer["items"]))}


def read(name: str) -> dict[str, Any]:
    """Return what was recorded before the first run."""
    taken: dict[str, Any] = json.loads(_file(name).read_text())
    return taken


def of_node(footprints: Iterable[Mapping[str, Any]], node: str) -> list[str]:
    """Return what differs on a node between two footprints, except for what stays."""
    before, after = (each["nodes"][node] for each in footprints)
    return differences(before, after)


def of_docker_host(footprints: Iterable[Mapping[str, Any]], node: str) -> list[str]:
    """Do the same without the files of groups: the package docker-ce creates the group docker."""
    taken = [each["nodes"][node] for each in footprints]
    before, after = ({**one, "files": {**one["files"]}} for one in taken)
    for path in _GROUPS:
        del before["files"][path], after["files"][path]
    return differences(before, after)


def of_cluster(footprints: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what differs in the cluster between two footprints."""
    before, after = (each["cluster"] for each in footprints)
    # Most objects have no value, only a name.
    gone = [f"{name} is gone" for name in sorted(before.keys() - after.keys())]
    came = [f"{name} is new" for name in sorted(after.keys() - before.keys())]
    both = sorted(before.keys() & after.keys())
    changed = [(name, before[name], after[name]) for name in both if before[name] != after[name]]
    return [*gone, *came, *(f"{name}: {old} → {new}" for name, old, new in changed)]


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return what differs on a node, except for what stays according to docs/teardown.md."""
    stays = list(read_document(DOCUMENT.read_text()))

    def is_named(name: str) -> bool:
        return any(fnmatchcase(name, each) or fnmatchcase(name, f"{each}/*") for each in stays)

    # A new directory stays with what is in it.
    new_paths = after["files"].keys() - before["files"].keys()
    holders = {str(parent) for path in filter(is_named, new_paths) for parent in Path(path).parents}
    found = []
    for kind in ("packages", "users"):
        for name, old, new in _changes(before[kind], after[kind]):
            if not is_named(name):
                found.append(f"{name}: {old} → {new}")
    files = list(_changes(before["files"], after["files"]))
    for path, old, new in files:
        if old is None and any(other.startswith(f"{path}/") for other, _old, _new in files):
            continue  # a new folder that is not empty: what is in it counts
        names = [path, *(package for row in (old, new) if row for package in row["of"])]
        holds_named = path in holders and path in new_paths
        if (old and old["is"]) != (new and new["is"]) and not (
            holds_named or any(map(is_named, names))
        ):
            found.append(f"{path}: {old} → {new}")
    return found


def read_document(text: str) -> Iterator[str]:
    """Yield the patterns of what stays: files, packages and users, from the tables' first column.

    A word in capitals is a placeholder, such as RELEASE.
    """
    section = text.partition("\n## What stays")[2].partition("\n## ")[0]
    for cell in re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE):
        for code in re.findall(r"`([^`]+)`", cell):
            yield re.sub(r"\b[A-Z]{3,}\b", "*", code)


def docker_hosts_absent(folder: Path) -> Path:
    """Write the playbook of docs/docker-hosts.md that takes everything back. Return its path."""
    document = (PROJECT / "docs/docker-hosts.md").read_text()
    section = document.partition("\n## Take it back")[2]
    path = folder / "absent.yml"
    path.write_text(section.split("```")[1].removeprefix("yaml\n"))
    return path


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if old != new:
            yield key, old, new


def _cluster_row(item: Mapping[str, Any]) -> tuple[str, Any]:
    """Return an object's name. For a node, also return what others may have set on it."""
    metadata = item["metadata"]
    key = "/".join((item["kind"], metadata.get("namespace", ""), metadata["name"]))
    if item["kind"] != "Node":
        return key, None
    # Kubernetes' own taints come and go with the kubelet.
    taints = [
        taint
        for taint in item["spec"].get("taints", [])
        if not taint["key"].startswith("node.kubernetes.io/")
    ]
    return key, {
        "unschedulable": item["spec"].get("unschedulable"),
        "taints": taints,
        "labels": metadata["labels"],
        "annotations": metadata["annotations"],
    }


def _lab(name: str, command: str, *words: str, stdin: str | None = None) -> Any:
    result = subprocess.run(
        [PROJECT / "tests/lab/lab", command, f"--name={name}", *words],
        check=True,
        input=stdin,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(result.stdout)


def _file(name: str) -> Path:
    return PROJECT / ".lab" / name / "footprint.json"


if __name__ == "__main__":
    _file(sys.argv[1]).write_text(json.dumps(take(sys.argv[1])))
