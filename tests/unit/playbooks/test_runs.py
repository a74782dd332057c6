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
from zlib import crc32

import pytest

from ansible_collections.metal.gpu.tests.unit.support.api_server import ApiServer
from ansible_collections.metal.gpu.tests.unit.support.healthy import containerd_node
from ansible_collections.metal.gpu.tests.unit.support.playbooks import (
    LOCAL,
    ROOT,
    Run,
    environment,
    run,
    run_role,
)

AWAY = {"ansible_connection": "ssh", "ansible_host": "127.0.0.254", "ansible_port": 9}
QUIET = {"ANSIBLE_STDOUT_CALLBACK": "metal.gpu.quiet"}
CI = (ROOT / "docs" / "ci.md").read_text()
NODE = {"apiVersion": "v1", "kind": "Node"}
SNIPPET = CI.partition("```shell\n")[2].partition("```")[0]


def inventory(hosts: dict[str, Any], **variables: Any) -> dict[str, Any]:
    variables = {**LOCAL, "metal_gpu_kubeconfig": "/nonexistent", **variables}
    return {"gpu_nodes": {"hosts": hosts, "vars": variables}}


class Fleet:
    """Healthy nodes, whose observations are given, and an API server that knows them."""

    def __init__(self, folder: Path, server: ApiServer) -> None:
        self._node = json.dumps(containerd_node().observed())
        self.server = server
        self._kubeconfig = server.kubeconfig(folder / "kubeconfig")

    def inventory(self, size: int, **variables: Any) -> dict[str, Any]:
        hosts = {f"gpu-{number}": self.host(f"gpu-{number}") for number in range(size)}
        return inventory(
            hosts,
            metal_gpu_kubeconfig=str(self._kubeconfig),
            metal_gpu_observation_is_fresh=True,
            verify_smoke=False,
            verify_drift=False,
            verify_capacity_timeout=1,
            **variables,
        )

    def host(self, name: str) -> dict[str, Any]:
        gpus = {"nvidia.com/gpu": "2"}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"conditions": ready, "capacity": gpus, "allocatable": gpus}
        self.server.put("nodes", {**NODE, "metadata": {"name": name}, "status": status})
        own = f"GPU-{crc32(name.encode()):08x}"  # each machine has GPUs of its own
        node = json.loads(re.sub(r"GPU-[0-9a-f]{8}", own, self._node))
        node["kubelet"]["node_name"] = name
        node["device_users"] = []  # asked for where a plan reloads units
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


def test_refusal_blames_only_the_host_that_is_refused(tmp_path, fleet):
    """The task that refuses runs as the first host."""
    hosts = fleet.inventory(2)
    hosts["gpu_nodes"]["hosts"]["gpu-1"]["gpu_count"] = "four"
    found = run(tmp_path, "metal.gpu.site", hosts, **QUIET)
    assert found.code == 2
    *_, last, outcome = found.output.splitlines()
    assert (last, outcome) == ("refused: gpu-1", "metal_gpu_outcome: refused")
    assert "See the refusals of gpu-1 above." in found.output
    failed = re.findall("^failed: .*", found.output, re.MULTILINE)
    assert failed == ["failed: metal.gpu.preflight : Refuse to start"]
    assert "[gpu-0]" not in found.output


def test_what_many_nodes_have_is_explained_once(tmp_path):
    hosts = inventory({f"gpu-{number}": {"gpu_count": "four"} for number in range(6)})
    found = run(tmp_path, "metal.gpu.site", hosts, **QUIET)
    assert found.code != 0
    findings, _, table = found.output.partition("node   GPU")
    assert findings.count("VARIABLE_INVALID") == 1
    assert "VARIABLE_INVALID gpu-0, gpu-1, gpu-2, gpu-3, gpu-4 and 1 more: gpu_count is" in findings
    assert table.count("VARIABLE_INVALID") == 6
    assert "CLUSTER_UNUSABLE cluster: " in findings  # no node has a name, and it is told at once
    assert "no kubeconfig: /nonexistent does not exist" in findings


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
    assert "metal_gpu_outcome: refused" in found.output  # nobody could ask it


@pytest.mark.parametrize("playbook", ["verify", "site"])  # a teardown observes anew
def test_nothing_happens_in_a_cluster_whose_nodes_only_have_the_same_names(
    tmp_path, fleet, playbook
):
    hosts = fleet.inventory(1)
    hosts["gpu_nodes"]["vars"]["verify_smoke"] = True
    (there,) = (item for key, item in fleet.server.objects().items() if key[0] == "nodes")
    there["status"]["nodeInfo"] = {"bootID": "b9", "machineID": "m9"}
    fleet.server.put("nodes", there)
    found = run(tmp_path, f"metal.gpu.{playbook}", hosts, **QUIET)
    assert found.code != 0
    assert "NODE_IS_ANOTHER gpu-0: the node gpu-0 of the cluster is another machine" in found.words
    assert "machine id m9" in found.words
    changes = {
        made.resource for made in fleet.server.requests if made.verb not in ("list", "watch")
    }
    assert changes <= {"selfsubjectaccessreviews"}


def pipeline(folder: Path, hosts: dict[str, Any]) -> Run:
    """Run the commands of docs/ci.md as they are."""
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
    healthy, lost, wrong, away = (fleet.inventory(1) for _ in range(4))
    kubeconfig = Path(away["gpu_nodes"]["vars"]["metal_gpu_kubeconfig"]).read_text()
    (tmp_path / "away").write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", kubeconfig))
    away["gpu_nodes"]["vars"]["metal_gpu_kubeconfig"] = str(tmp_path / "away")
    lost["gpu_nodes"]["hosts"]["gpu-0"]["gpu_count"] = 3
    wrong["gpu_nodes"]["vars"]["verify_smoke_timeout"] = "soon"
    expected = {
        0: healthy,
        10: lost,
        11: wrong,
        12: away,
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


ADOPT = {"device_plugin_foreign": "adopt", "device_plugin_adopt": "kube-system/plugin"}


def put_plugin(server: ApiServer, **pods: bool) -> None:
    """Put the device plugin of an admin into the cluster: whether its pod is Ready, by node."""
    labels = {"app": "plugin"}
    containers = [{"name": "plugin", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.17.0"}]
    folder = {"name": "folder", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}
    spec = {"containers": containers, "volumes": [folder]}
    where = {"namespace": "kube-system", "labels": labels}
    daemonset = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "plugin", **where, "generation": 1},
        "spec": {"selector": {"matchLabels": labels}, "template": {"spec": spec}},
    }
    server.put("daemonsets", daemonset)
    for node, is_ready in pods.items():
        ready = {"type": "Ready", "status": str(is_ready)}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"plugin-{node}", **where},
            "spec": {**spec, "nodeName": node.replace("_", "-")},
            "status": {"phase": "Running", "conditions": [ready]},
        }
        server.put("pods", pod)


WHO = """
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "who"

    def v2_playbook_on_play_start(self, play):
        hosts = play.get_variable_manager()._inventory.get_hosts(play.hosts)
        self._display.display(f"WHO {play.get_name()}: {' '.join(str(host) for host in hosts)}")
"""


@pytest.fixture
def who(tmp_path: Path) -> dict[str, str]:
    """The environment in which a run prints the hosts of each play."""
    (tmp_path / "callbacks").mkdir()
    (tmp_path / "callbacks" / "who.py").write_text(WHO)
    return {"ANSIBLE_CALLBACK_PLUGINS": str(tmp_path / "callbacks"), **QUIET}


def give_work(host: dict[str, Any]) -> None:
    """Stop a service on a node."""
    host["metal_gpu"]["node"]["driver"]["persistenced"].update(active=False, enabled=False)


def make_bare(host: dict[str, Any]) -> None:
    """Take the driver from a node."""
    give_work(host)
    node = host["metal_gpu"]["node"]
    failure = {"code": "not_installed", "exit_code": None, "message": "nvidia-smi is not installed"}
    node["nvml"].update(devices=[], failure=failure)
    node["kernel"]["modules"] = []


def test_rehearsal_of_bare_nodes_is_no_failure(tmp_path, fleet):
    """What the real run sets up is no finding. A GPU that the bus lacks is one."""
    put_plugin(fleet.server)
    hosts = fleet.inventory(2, **ADOPT)
    for host in hosts["gpu_nodes"]["hosts"].values():
        make_bare(host)
    # No role runs, because of the tags. `mine` could be one of all tasks.
    playbook = [{"ansible.builtin.import_playbook": "metal.gpu.site"}]
    options = ("--check", "--tags=always,verify,mine")
    found = run(tmp_path, playbook, hosts, *options, **QUIET)
    assert found.code == 0, found.output
    assert "NVML_UNAVAILABLE" not in found.output
    assert len(re.findall(r"^gpu-[01] .* planned$", found.output, re.MULTILINE)) == 2
    assert "2 of 2 nodes planned, 2 would change, only a real run proves GPUs, " in found.output
    assert "metal_gpu_outcome: planned" in found.output

    hosts["gpu_nodes"]["hosts"]["gpu-1"]["gpu_count"] = 3
    skip = "-emetal_gpu_skip_refused=true"
    found = run(tmp_path, playbook, hosts, *options, skip, **QUIET)
    assert found.code != 0
    assert re.search(r"^gpu-0 .* planned$", found.output, re.MULTILINE), found.output
    assert re.search(r"^gpu-1 .* GPU_COUNT_DIFFERS\b", found.output, re.MULTILINE), found.output
    assert "metal_gpu_outcome: unhealthy" in found.output


def test_rehearsal_without_roles_promises_nothing(tmp_path, fleet):
    """The tags leave out the role that would install the driver, also in the real run."""
    hosts = fleet.inventory(1, **ADOPT)
    put_plugin(fleet.server)
    make_bare(hosts["gpu_nodes"]["hosts"]["gpu-0"])
    found = run(tmp_path, "metal.gpu.site", hosts, "--check", "--tags=always,verify", **QUIET)
    assert found.code == 2, found.output
    assert re.search(r"^gpu-0 .* NVML_UNAVAILABLE DRIFTED$", found.output, re.MULTILINE)
    assert "0 of 1 nodes ok, 0 GPUs, 0 would change, " in found.output
    assert "metal_gpu_outcome: unhealthy" in found.output


def test_role_verify_by_the_program_ansible(tmp_path, fleet):
    """It has no tags."""
    found = run_role(tmp_path, "metal.gpu.verify", fleet.inventory(1), "--become")
    assert found.code == 0, found.output
    assert "1 of 1 nodes ok, 2 GPUs, 0 changed, " in found.output


def test_check_mode_of_verify_hides_nothing(tmp_path, fleet):
    """It has no real run that would set up what is missing."""
    hosts = fleet.inventory(1)
    hosts["gpu_nodes"]["vars"]["verify_drift"] = True
    make_bare(hosts["gpu_nodes"]["hosts"]["gpu-0"])
    found = run(tmp_path, "metal.gpu.verify", hosts, "--check", **QUIET)
    assert found.code == 2, found.output
    assert re.search(r"^gpu-0 .* NVML_UNAVAILABLE DRIFTED$", found.output, re.MULTILINE)
    assert "metal_gpu_outcome: unhealthy" in found.output


def importing(playbook: str, hosts: str) -> dict[str, Any]:
    return {
        "ansible.builtin.import_playbook": f"metal.gpu.{playbook}",
        "vars": {"metal_gpu_hosts": hosts, **ADOPT},
    }


PREPARE = "Prepare the driver, the engine and the kubelet"
OBSERVE = "Observe again the nodes without work"
REMOVE = "Remove the GPUs from the cluster"
RESTORE = "Restore each node with work"
FAIL = "Fail for the nodes that are not well"
LEFT_OUT = "Fail for the nodes that the run left out"


@pytest.mark.parametrize(
    ("plays", "refused", "work", "expected"),
    [
        pytest.param(
            [importing("site", "gpu_nodes")],
            [],
            [],
            [(PREPARE, ""), (OBSERVE, ""), (FAIL, "")],
            id="nothing to do",
        ),
        pytest.param(
            [importing("site", "gpu_nodes")],
            ["gpu-0"],
            ["gpu-1"],
            [(PREPARE, "gpu-1 fd00::12"), (OBSERVE, "fd00::12 gpu-2"), (FAIL, "gpu-0")],
            id="the first is refused",
        ),
        pytest.param(
            [importing("site", "gpu_nodes")],
            ["fd00::12"],
            ["gpu-0"],
            [(PREPARE, "gpu-0 gpu-1"), (OBSERVE, "gpu-1 gpu-2"), (FAIL, "fd00::12")],
            id="a name with colons is refused",
        ),
        pytest.param(
            [importing("teardown", "gpu_nodes")],
            ["gpu-0", "fd00::12"],
            [],
            [
                (REMOVE, "gpu-1 gpu-2"),
                (RESTORE, "gpu-1 gpu-2"),
                (LEFT_OUT, "fd00::12 gpu-0"),
            ],
            id="teardown",
        ),
        pytest.param(
            [importing("site", "gpu-0,gpu-2"), importing("teardown", "gpu-1")],
            [],
            ["gpu-0"],
            [
                *[(PREPARE, "gpu-0 gpu-2"), (OBSERVE, "gpu-2"), (FAIL, "")],
                *[(REMOVE, "gpu-1"), (RESTORE, "gpu-1"), (LEFT_OUT, "")],
            ],
            id="site, then teardown",
        ),
        pytest.param(
            [importing("teardown", "gpu-1"), importing("site", "gpu-0,gpu-2")],
            [],
            ["gpu-0"],
            [
                *[(REMOVE, "gpu-1"), (RESTORE, "gpu-1"), (LEFT_OUT, "")],
                *[(PREPARE, "gpu-0 gpu-2"), (OBSERVE, "gpu-2"), (FAIL, "")],
            ],
            id="teardown, then site",
        ),
    ],
)
def test_who_is_in_which_play(tmp_path, fleet, who, plays, refused, work, expected):
    put_plugin(fleet.server)
    groups = fleet.inventory(3, metal_gpu_skip_refused=True, **ADOPT)
    hosts = groups["gpu_nodes"]["hosts"]
    hosts["fd00::12"] = fleet.host("gpu-12")
    for name in refused:
        hosts[name]["gpu_count"] = "four"
    for name in work:
        give_work(hosts[name])
    # No role runs, because of the tags.
    found = run(tmp_path, plays, groups, "--check", "--tags=always", **who)
    seen = re.findall(r"^WHO (.*?): (.*)$", found.output, re.MULTILINE)
    names = {play for play, _hosts in expected}
    assert [one for one in seen if one[0] in names] == expected, found.output


def test_teardown_ends_with_a_line(tmp_path, fleet):
    put_plugin(fleet.server)
    groups = fleet.inventory(3, metal_gpu_skip_refused=True, **ADOPT)
    groups["gpu_nodes"]["hosts"]["gpu-1"]["gpu_count"] = "four"
    # No role runs, because of the tags.
    found = run(tmp_path, "metal.gpu.teardown", groups, "--tags=always", **QUIET)
    assert found.code == 2, found.output
    line = "2 of 3 nodes done as far as the tags go, 1 refused, "
    assert len(re.findall(rf"^{line}\d+ s$", found.output, re.MULTILINE)) == 1, found.output


def test_run_that_loses_every_node_with_work_ends_with_the_table(tmp_path, fleet):
    """A node without work stands by in the play that changes nodes."""
    put_plugin(fleet.server, gpu_0=True, gpu_1=True)
    hosts = fleet.inventory(3, **ADOPT, device_plugin_wait_timeout=1)
    for name in ("gpu-1", "gpu-2"):
        give_work(hosts["gpu_nodes"]["hosts"][name])
        hosts["gpu_nodes"]["hosts"][name] |= AWAY
    found = run(tmp_path, "metal.gpu.site", hosts, "-everify_drift=true", **QUIET)
    assert found.code != 0
    table = found.output.partition("node   GPU")[2]
    for name in ("gpu-1", "gpu-2"):
        assert f"unreachable: [{name}]" in found.output
        assert re.search(rf"^{name} .* NODE_UNREACHABLE$", table, re.MULTILINE), found.output
    assert re.search(r"^gpu-0 ", table, re.MULTILINE)
    assert " of 3 nodes ok, " in table, found.output
    assert "metal_gpu_outcome: unhealthy" in table, found.output


def test_no_batch_begins_after_one_that_was_lost(tmp_path, fleet):
    hosts = fleet.inventory(2, **ADOPT)
    for host in hosts["gpu_nodes"]["hosts"].values():
        give_work(host)
        host |= AWAY
    found = run(tmp_path, "metal.gpu.site", hosts, "-emetal_gpu_serial=1", **QUIET)
    assert found.code != 0
    assert "unreachable: [gpu-0]" in found.output
    assert "unreachable: [gpu-1]" not in found.output


def test_failure_of_the_device_plugin_is_shown_if_the_first_host_is_refused(tmp_path, fleet):
    put_plugin(fleet.server, gpu_1=False)
    hosts = fleet.inventory(
        2,
        metal_gpu_skip_refused=True,
        **ADOPT,
        device_plugin_wait_timeout=1,
    )
    hosts["gpu_nodes"]["hosts"]["gpu-0"]["gpu_count"] = 3
    found = run(tmp_path, "metal.gpu.site", hosts, **QUIET)
    assert found.code != 0
    assert "ROLLOUT_STUCK gpu-1: " in found.output, found.output
    assert re.search(r"^gpu-1 .* ROLLOUT_STUCK$", found.output, re.MULTILINE)
    assert "0 of 2 nodes ok, 4 GPUs, 0 changed, 1 refused, " in found.output


def test_roles_in_a_play_of_the_users_own(tmp_path, fleet):
    """Nobody says there which nodes are prepared, and the play says how many GPUs there are."""
    hosts = fleet.inventory(2)
    for host in hosts["gpu_nodes"]["hosts"].values():
        give_work(host)
        del host["gpu_count"]
    put_plugin(fleet.server)
    bring = [{"name": name, "hosts": "gpu_nodes", "gather_facts": False} for name in "12"]
    bring[0] |= {"roles": ["metal.gpu.preflight"], "vars": {**ADOPT}}
    bring[1] |= {"roles": ["metal.gpu.verify"], "vars": {"gpu_count": 3}}
    found = run(tmp_path, bring, hosts, **QUIET)
    assert "the node was unreachable" not in found.output
    for name in ("gpu-0", "gpu-1"):
        assert re.search(
            rf"^{name} .* 3 +2 +2 +2 +2 +-  GPU_COUNT_DIFFERS CAPACITY_DIFFERS$", found.output, re.M
        )
    assert found.code != 0


def test_variables_that_cannot_be_rendered_are_findings_of_their_host(tmp_path, fleet):
    hosts = fleet.inventory(4, fleet_engine="containerd")
    first, second, third, fourth = hosts["gpu_nodes"]["hosts"].values()
    first["gpu_count"] = "{{ cards[inventory_hostname] }}"
    second["gpu_count"] = "{% if true %}2{% endif %}"
    third["metal_gpu_engine"] = "{{ fleet_engine }}"
    fourth["ansible_connection"] = "acme.none.carrier"
    found = run(tmp_path, "metal.gpu.verify", hosts, **QUIET)
    assert re.search(r"^RUN_STOPPED gpu-0: .*the variable gpu_count.*cards", found.output, re.M)
    for name in ("gpu-1", "gpu-2"):
        assert re.search(rf"^{name} .* 2 +2 +2 +2 +2 +-  ok$", found.output, re.M), found.output
    assert re.search(r"^RUN_STOPPED gpu-3: .*acme\.none\.carrier", found.output, re.M)
    assert "2 of 4 nodes ok, " in found.output


def test_node_that_failed_earlier_in_its_batch_is_in_the_table(tmp_path, fleet):
    hosts = fleet.inventory(3)
    hosts["gpu_nodes"]["hosts"]["gpu-1"] = AWAY
    plays = [
        {
            "name": "A play of the user's own",
            "hosts": "gpu_nodes",
            "gather_facts": False,
            "serial": 2,
            "max_fail_percentage": 100,
            "pre_tasks": [{"name": "Greet", "ansible.builtin.command": "true"}],
            "roles": ["metal.gpu.verify"],
        }
    ]
    found = run(tmp_path, plays, hosts, **QUIET)
    assert "1 of 2 nodes ok, " in found.output, found.output
    assert "1 of 1 nodes ok, " in found.output
    assert "CLUSTER_UNKNOWN" not in found.output
