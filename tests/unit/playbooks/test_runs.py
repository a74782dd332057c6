# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run prints and how it ends: with the verdict, however it was configured."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metal.gpu.tests.unit.support.api_server import ApiServer
from ansible_collections.metal.gpu.tests.unit.support.healthy import containerd_node
from ansible_collections.metal.gpu.tests.unit.support.playbooks import (
    LOCAL,
    ROOT,
    Run,
    environment,
    run,
)

AWAY = {"ansible_connection": "ssh", "ansible_host": "127.0.0.254", "ansible_port": 9}
QUIET = {"ANSIBLE_STDOUT_CALLBACK": "metal.gpu.quiet"}
CI = (ROOT / "docs" / "fleet.md").read_text().partition("## In a pipeline")[2]
SNIPPET = CI.partition("```shell\n")[2].partition("```")[0]


def inventory(hosts: dict[str, Any], **variables: Any) -> dict[str, Any]:
    variables = {**LOCAL, "metal_gpu_kubeconfig": "/nonexistent", **variables}
    return {"gpu_nodes": {"hosts": hosts, "vars": variables}}


class Fleet:
    """Healthy nodes, whose observations are given, and an API server that knows them."""

    def __init__(self, folder: Path, server: ApiServer) -> None:
        self._node = json.dumps(containerd_node().observed())
        self._server = server
        self._kubeconfig = folder / "kubeconfig"
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": server.url}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": server.token}}],
        }
        self._kubeconfig.write_text(json.dumps(kubeconfig))

    def inventory(self, size: int, **variables: Any) -> dict[str, Any]:
        hosts = {f"gpu-{number}": self._host(f"gpu-{number}") for number in range(size)}
        return inventory(
            hosts,
            metal_gpu_kubeconfig=str(self._kubeconfig),
            metal_gpu_observation_is_fresh=True,
            verify_smoke=False,
            verify_drift=False,
            verify_capacity_timeout=1,
            **variables,
        )

    def _host(self, name: str) -> dict[str, Any]:
        gpus = {"nvidia.com/gpu": "2"}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"conditions": ready, "capacity": gpus, "allocatable": gpus}
        self._server.put("nodes", {"metadata": {"name": name}, "status": status})
        node = json.loads(self._node)
        node["kubelet"]["node_name"] = name
        return {"gpu_count": 2, "metal_gpu": {"node": node}}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with ApiServer() as server:
        yield Fleet(tmp_path, server)


@pytest.mark.parametrize(
    ("callback", "of_each_node", "besides"),
    [
        pytest.param(QUIET, 1, 40, id="quiet"),  # its row of the table
        # Its observation, its row of the table, and its line of the recap.
        pytest.param({}, 3, 70, id="default"),
    ],
)
def test_lines_for_each_node(tmp_path, fleet, callback, of_each_node, besides):
    counts = {}
    for size in (2, 12):
        found = run(tmp_path, "metal.gpu.verify", fleet.inventory(size), **callback)
        assert found.code == 0, found.output
        assert f"{size} of {size} nodes ok, {2 * size} GPUs, 0 changed, " in found.output
        counts[size] = len(found.output.splitlines())
    assert counts[12] - counts[2] == 10 * of_each_node
    assert counts[2] - 2 * of_each_node <= besides


def test_refused_run_ends_with_the_table(tmp_path):
    hosts = inventory({"gpu-1": {"gpu_count": "four"}, "gpu-2": AWAY})
    found = run(tmp_path, "metal.gpu.site", hosts, **QUIET)
    assert found.code != 0
    findings, _, table = found.output.partition("node   GPU")
    assert "VARIABLE_INVALID gpu-1: gpu_count is 'four'" in " ".join(findings.split())
    assert "NODE_UNREACHABLE gpu-2: " in findings
    first, second, line, *rest = table.splitlines()[1:]
    assert re.match(r"gpu-1 .* VARIABLE_INVALID\b", first)
    assert re.match(r"gpu-2 .* NODE_UNREACHABLE\b", second)
    assert re.fullmatch(r"0 of 2 nodes ok, 0 GPUs, 0 changed, 2 refused, \d+ s", line)
    assert "metal_gpu_outcome: refused" in rest
    assert found.output.count("NODE_UNREACHABLE gpu-2: ") == 1


def test_refusal_of_the_cluster_is_in_every_row(tmp_path, fleet):
    """The nodes are well. Only the API server is away."""
    hosts = fleet.inventory(2)
    hosts["gpu_nodes"]["vars"]["metal_gpu_kubeconfig"] = "/nonexistent"
    found = run(tmp_path, "metal.gpu.site", hosts, **QUIET)
    assert found.code != 0
    for name in ("gpu-0", "gpu-1"):
        row = rf"{name} .*P100.* 2 +2 +2 +- +- +-  .*\bCLUSTER_UNUSABLE"
        assert re.search(row, found.output), found.output
    assert "0 of 2 nodes ok, 4 GPUs, 0 changed, 2 refused, " in found.output
    assert "metal_gpu_outcome: cluster_down" in found.output


def pipeline(folder: Path, hosts: dict[str, Any]) -> Run:
    """Run the commands of docs/fleet.md as they are."""
    (folder / "hosts.yml").write_text(json.dumps(hosts))
    path = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    result = subprocess.run(
        ["sh", "-c", SNIPPET],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=environment(folder, ANSIBLE_INVENTORY=str(folder / "hosts.yml"), PATH=path),
    )
    return Run(result.returncode, result.stdout)


def test_pipeline_tells_outcomes_apart(tmp_path, fleet):
    healthy, lost, wrong = (fleet.inventory(1) for _ in range(3))
    lost["gpu_nodes"]["hosts"]["gpu-0"]["gpu_count"] = 3
    wrong["gpu_nodes"]["vars"]["verify_smoke_timeout"] = "soon"
    expected = {
        0: healthy,
        10: lost,
        11: wrong,
        12: inventory({"gpu-0": healthy["gpu_nodes"]["hosts"]["gpu-0"]}),
        13: {"others": {"hosts": {"gpu-0": {}}}},
    }
    found = {code: pipeline(tmp_path, hosts) for code, hosts in expected.items()}
    assert {code: one.code for code, one in found.items()} == {code: code for code in expected}


def test_default_callback_shows_the_outcome_if_asked(tmp_path):
    hosts = inventory({"gpu-1": AWAY})
    found = run(tmp_path, "metal.gpu.verify", hosts, ANSIBLE_SHOW_CUSTOM_STATS="true")
    assert re.search(r'RUN: \{\s*"metal_gpu_outcome": "unhealthy"\s*\}', found.output)


DEFECT = """

_observe = observe


def observe(raw):
    if "v1.29.99" in raw.stdout("kubelet"):
        raise ValueError("nobody has thought of this")
    return _observe(raw)
"""


@pytest.fixture
def defective_collection(tmp_path: Path) -> Path:
    """The collection with a component that raises on nodes with one version of the kubelet."""
    copy = tmp_path / "collections" / "ansible_collections" / "metal" / "gpu"
    for folder in ("meta", "playbooks", "plugins", "roles"):
        shutil.copytree(ROOT / folder, copy / folder)
    shutil.copy(ROOT / "galaxy.yml", copy)
    observed = copy / "plugins" / "plugin_utils" / "components" / "kubelet" / "observed.py"
    observed.write_text(observed.read_text() + DEFECT)
    return copy.parents[2]


@pytest.fixture
def python_with_that_kubelet(tmp_path: Path) -> str:
    """An interpreter for one node, which finds that kubelet before any other."""
    programs = tmp_path / "programs"
    programs.mkdir()
    texts = {
        "kubelet": "echo Kubernetes v1.29.99",
        "python": f'PATH={programs}:$PATH exec {sys.executable} "$@"',
    }
    for name, text in texts.items():
        path = programs / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(programs / "python")


def test_defect_in_a_component_stops_its_node_only(
    tmp_path, defective_collection, python_with_that_kubelet
):
    hosts = {"gpu-1": {"ansible_python_interpreter": python_with_that_kubelet}, "gpu-2": {}}
    path = str(defective_collection)
    found = run(
        tmp_path, "metal.gpu.verify", inventory(hosts), ANSIBLE_COLLECTIONS_PATH=path, **QUIET
    )
    assert found.code != 0
    place = r"plugins/plugin_utils/components/kubelet/observed.py:\d+ in observe"
    message = "component kubelet: ValueError: nobody has thought of this"
    assert re.search(rf"OBSERVATION_FAILED gpu-1: .*{message}.*{place}", found.words)
    assert re.search(r"gpu-1 .* OBSERVATION_FAILED\b", found.output)
    second = re.search(r"^gpu-2 .*$", found.output, re.MULTILINE)
    assert second
    assert "OBSERVATION_FAILED" not in second[0]
    assert "CLUSTER_UNUSABLE" in second[0]  # judged like any other
    assert "Traceback" not in found.output
