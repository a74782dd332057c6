# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import labels


def row(state: str = "ok", added: str = "", **labels: str) -> dict[str, Any]:
    annotations = {"metal.gpu/labelled": added} if added else {}
    return {"state": state, "labels": labels, "annotations": annotations}


def test_labels_are_put_where_they_lack_and_noted() -> None:
    nodes: Any = {
        "n1": row(gpu="true", pool="a", x="y"),
        "n2": row(gpu="true"),
        "n3": row("missing"),
        "n4": row(gpu="true", added="pool"),  # somebody has removed it
        "n5": row(gpu="true", pool="old", added="pool"),
    }
    patches = labels.labelling(nodes, {"gpu": "true", "pool": "a"})
    assert [patch["metadata"] for patch in patches] == [
        {"name": name, "labels": {"pool": "a"}, "annotations": {"metal.gpu/labelled": "pool"}}
        for name in ("n2", "n4")
    ]


def labelled_node(name: str, added: str | None, **labels: str) -> dict[str, Any]:
    annotations = {} if added is None else {"annotations": {"metal.gpu/labelled": added}}
    return {"metadata": {"name": name, "labels": labels, **annotations}}


def test_only_labels_of_ours_are_taken_off() -> None:
    nodes = [
        labelled_node("n1", "pool", gpu="true", pool="a"),
        labelled_node("n2", None, gpu="true", pool="a"),
        labelled_node("n3", "gpu,pool", gpu="true", pool="a"),
    ]
    found: Any = labels.unlabelling(nodes, ["n1", "n2"], {"gpu": "true", "pool": "a"})
    (patch,) = found.pop("patches")
    assert patch["metadata"] == {
        "name": "n1",
        "labels": {"pool": None},
        "annotations": {"metal.gpu/labelled": None},
    }
    assert found == {"kept": ["n2"], "left": ["n3"]}


def test_a_node_that_keeps_the_plugin_is_a_finding_about_its_host() -> None:
    members: Any = [
        {"host": "a", "node": "n1", "engine": None},
        {"host": "b", "node": "n2", "engine": None},
    ]
    sorted_: Any = {"patches": [], "kept": ["n1", "other"], "left": ["n9"]}
    (finding,) = labels.keeping(members, sorted_, "nvidia.com/gpu.present=true").pop("a")
    assert finding["code"] == "LABEL_OF_ADMIN"
