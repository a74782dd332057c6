# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from metal_lab.cache import LAB_SOURCES
from metal_lab.description import MACHINES, machine, read

GOOD = "nodes:\n  - {name: gpu-1, os: debian12, machine: p100x4}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "is not a description", id="empty"),
        pytest.param("nodes: [", "is not a description", id="not-yaml"),
        pytest.param(GOOD + GOOD[7:], "two nodes have the same name: gpu-1, gpu-1", id="twice"),
        pytest.param(GOOD.replace("debian12", "plan9"), "os 'plan9' is not one", id="os"),
        pytest.param(GOOD.replace("p100x4", "p100x5"), "machine 'p100x5' is not one", id="machine"),
        pytest.param(GOOD[:-2] + ", engine: podman}", "engine 'podman' is not one", id="engine"),
        pytest.param(GOOD[:-2] + ", docker: imports}", "docker 'imports' is not one", id="docker"),
        pytest.param(GOOD.replace("os:", "system:"), "is not a description", id="unknown-key"),
    ],
)
def test_read_names_the_file_and_the_reason(tmp_path, text, message):
    path = tmp_path / "lab.yml"
    path.write_text(text)
    with pytest.raises(SystemExit, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_variables_of_a_node(tmp_path):
    path = tmp_path / "lab.yml"
    path.write_text(GOOD[:-2] + ", vars: {docker_ce_replace_distribution: true}}")
    (node,) = read(path)
    assert node.vars == {"docker_ce_replace_distribution": True}
    assert (node.engine, node.docker, node.containerd) == ("containerd", "plain", "plain")


@pytest.mark.parametrize("path", sorted((LAB_SOURCES / "labs").glob("*.yml")), ids=str)
def test_own_laboratories_can_be_read(path):
    assert read(path)


def test_every_machine_can_be_used(tmp_path):
    path = tmp_path / "lab.yml"
    names = [file.stem for file in MACHINES.glob("*.yml")]
    assert {"p100x4", "a100x8", "h100x8", "t4x1", "mixed"} <= set(names)
    for name in names:
        path.write_text(GOOD.replace("p100x4", name))
        (node,) = read(path)
        assert machine(node)
