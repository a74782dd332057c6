# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which nodes get the labels that let the plugin run there, and which lose them?

An annotation lists the labels that this role added, so that the admin's labels are never removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.shapes import (
    Manifest,
    Member,
    Object,
    Row,
)

_ADDED = "metal.gpu/labelled"  # annotation of a node: the labels that this role added


class Unlabelling(TypedDict):
    """What happens to nodes that have the labels."""

    patches: list[Manifest]  # remove the labels that this role added to the named nodes
    kept: list[str]  # named nodes that keep the labels, because this role added none
    left: list[str]  # all other nodes


def refusals(
    members: Iterable[Member], rows: Mapping[str, Row], labels: Mapping[str, str]
) -> list[dict[str, str]]:
    """Refuse nodes that have one of the labels with another value: the admin may need it."""
    return [
        finding(
            "NODE_LABEL_TAKEN",
            member["host"],
            node=member["node"],
            found=f"{key}={value}",
            expected=f"{key}={labels[key]}",
            key=key,
        )
        for member in members
        if member["node"] in rows
        for key, value in _taken(rows[member["node"]], labels).items()
    ]


def labelling(nodes: Mapping[str, Row], labels: Mapping[str, str]) -> list[Manifest]:
    """Return the patches for the nodes of the cluster that lack one of the labels.

    A node that has one of the labels with another value stays as it is.
    """
    patches = []
    for name, row in nodes.items():
        lacking = {key: value for key, value in labels.items() if row["labels"].get(key) != value}
        if row["state"] == "missing" or not lacking or _taken(row, labels):
            continue
        added = sorted({*_added(row["annotations"]), *lacking})
        patches.append(_patch(name, lacking, ",".join(added)))
    return patches


def unlabelling(
    nodes: Sequence[Object], names: Collection[str], labels: Mapping[str, str]
) -> Unlabelling:
    """Sort the nodes (Node objects) that have all of the labels."""
    patches, kept, left = [], [], []
    for node in nodes:
        name = node["metadata"]["name"]
        added = _added(section(node, "metadata", "annotations"))
        if name not in names:
            left.append(name)
        elif any(key in added for key in labels):
            patches.append(_patch(name, dict.fromkeys(added), None))
        else:
            kept.append(name)
    return {"patches": patches, "kept": kept, "left": left}


def _patch(name: str, labels: Mapping[str, str | None], added: str | None) -> Manifest:
    metadata = {"name": name, "labels": labels, "annotations": {_ADDED: added}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def keeping(
    members: Iterable[Member], labels: Unlabelling, label: str
) -> dict[str, list[dict[str, str]]]:
    """Return a finding for each host whose node keeps the plugin; see `unlabelling`."""
    others = ", ".join(labels["left"])
    return {
        one["host"]: [finding("LABEL_OF_ADMIN", one["host"], label=label, others=others)]
        for one in members
        if one["node"] in labels["kept"]
    }


def refuse_keeping(
    members: Iterable[Member], rows: Mapping[str, Row], labels: Mapping[str, str], scheduled: int
) -> list[dict[str, str]]:
    """Refuse nodes that will keep the plugin, as `keeping` does later, before a pod is evicted.

    Our DaemonSet is `scheduled` on so many nodes. Without others, it goes whoever set the labels.
    """
    labelled = {name: row for name, row in rows.items() if labels.items() <= row["labels"].items()}
    others = scheduled - len(labelled)
    return [
        finding(
            "LABEL_OF_ADMIN",
            one["host"],
            label=",".join(f"{key}={value}" for key, value in labels.items()),
            others=f"{others} of {scheduled} nodes",
        )
        for one in members
        if one["node"] in labelled and others > 0
        if not labels.keys() & {*_added(labelled[one["node"]]["annotations"])}
    ]


def _taken(row: Row, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that a node has with another value.

    The annotation has the keys of the labels that this role has added, but not their values. An
    admin may have changed the value of such a label, too, to keep the plugin off the node.
    """
    found = row["labels"]
    return {
        key: found[key] for key, value in labels.items() if key in found and found[key] != value
    }


def _added(annotations: Mapping[str, str]) -> list[str]:
    """Return the labels that this role added to a node."""
    return [key for key in annotations.get(_ADDED, "").split(",") if key]
