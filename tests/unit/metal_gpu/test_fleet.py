# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fleets: machines behind SSH, and machines whose answers are recorded."""

from __future__ import annotations

import base64
import json
import zlib
from functools import partial

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import interpret
from ansible_collections.metal.gpu.tests.unit.support.api_server import ApiServer
from ansible_collections.metal.gpu.tests.unit.support.healthy import containerd_node
from ansible_collections.metal.gpu.tests.unit.support.ssh_server import Machine
from metal_gpu import Fleet, Host, node_program, verdicts
from metal_gpu.nodes import Node, observe
from metal_gpu.ssh import Answer, Unreachable

HOST = Host("gpu-1", "10.0.0.1", variables={"gpu_count": 2})


class Recorded:
    """A session whose machine answers with what was recorded."""

    def __init__(self, stdout, stderr=b"", rc=0):
        self.answer = Answer(rc, stdout, stderr)
        self.commands = []

    def run(self, command, stdin=b"", timeout_s=0.0, sudo=True):
        self.commands.append(command)
        return self.answer

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        """Nothing is open."""


def answer(raw):
    packed = base64.b64encode(zlib.compress(json.dumps(raw).encode())).decode()
    words = json.dumps({"raw": packed})
    return f"{node_program.BEGIN}\n{words}\n{node_program.END}\n".encode()


@pytest.fixture(scope="module")
def raw():
    return containerd_node().raw


@pytest.fixture
def fleet(raw):
    return Fleet([HOST], connect=lambda _host, _settings: Recorded(answer(raw)))


def test_node_over_ssh(start, known, key):
    """The whole way: login, program, answer, observation, plan."""
    server = start(Machine(keys=[key]))
    host = Host("node", "127.0.0.1", server.port, become=False)
    [node] = Fleet([host], known(server)).observe()
    assert node.observed["kernel"]["release"]
    assert node.plan().roles.keys() >= {"preflight", "nvidia_driver"}
    assert "NO_GPU" in [one["code"] for one in node.findings] or node.observed["pci"]


def test_healthy_node(fleet, raw):
    [node] = fleet.observe()
    assert node.observed == interpret(raw)
    assert (node.name, node.declared, node.findings, node.is_sound) == ("gpu-1", 2, [], True)


def test_desired_variables_change_the_plan(fleet):
    [node] = fleet.observe()
    asked = node.plan({"metal_gpu_engine": "docker"})
    assert asked.refusals
    assert node.plan().refusals == []


def test_misspelled_variable_is_noticed(raw):
    host = Host("gpu-1", "a", variables={"gpu_cuont": 2})
    [notice] = Node(host, interpret(raw)).plan({"metal_gpu_engin": "docker"}).notices[1:]
    assert notice["code"] == "VARIABLE_UNKNOWN"
    assert "did you mean metal_gpu_engine?" in notice["message"]


def test_step_has_its_role_and_reason(fleet, raw):
    changed = json.loads(json.dumps(raw))
    changed["texts"] = {
        path: text
        for path, text in changed["texts"].items()
        if path != "/etc/containerd/config.toml"
    }
    connect = partial(lambda recorded, _host, _settings: recorded, Recorded(answer(changed)))
    [node] = Fleet([HOST], connect=connect).observe()
    assert all(step.role and step.slug and step.name and step.reason for step in node.plan().steps)


def test_variable_that_only_ansible_renders_is_named(raw):
    host = Host("gpu-1", "10.0.0.1", variables={"nvidia_driver_version": "{{ lookup('x') }}"})
    plan = Node(host, interpret(raw)).plan()
    [refusal] = plan.refusals
    assert refusal["code"] == "RUN_STOPPED"
    assert "nvidia_driver_version" in refusal["message"]
    shared = Host("gpu-1", "10.0.0.1", variables={"gpu_count": "{{ lookup('x') }}"})
    [refusal] = Node(shared, interpret(raw)).plan().refusals
    assert "gpu_count" in refusal["message"]


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"gpu_expected": "8"}, "gpu_expected"),
        ({"gpu_expected": {"nvidia.com/gpu": "eight"}}, "gpu_expected"),
        ({"verify_smoke": "perhaps"}, "verify_smoke"),
        ({"nvidia_driver_version": "{{ number }}", "number": 580}, "nvidia_driver_version"),
    ],
)
def test_what_site_refuses_is_refused(raw, variables, name):
    plan = Node(Host("gpu-1", "a", variables=variables), interpret(raw)).plan()
    refusal = plan.refusals[0]
    assert refusal["code"] == "VARIABLE_INVALID"
    assert name in refusal["message"]


def test_variable_that_is_encrypted_is_not_checked(raw):
    secret = {"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256\n00"}
    host = Host("gpu-1", "a", variables={"verify_smoke_namespace": secret})
    assert Node(host, interpret(raw)).plan().refusals == []


@pytest.mark.parametrize(
    ("stdout", "stderr", "code", "words"),
    [
        (b"% Invalid input\n", b"", "NODE_NOT_OBSERVED", "% Invalid input"),
        (b"", b"No space left on device\n", "NODE_NOT_OBSERVED", "No space left"),
        (b"This account is currently not available.\n", b"", "LOGIN_SHELL_MISSING", "no shell"),
        (
            f'{node_program.BEGIN}\n{{"python": null}}\n{node_program.END}'.encode(),
            b"",
            "PYTHON_MISSING",
            "the node has no Python",
        ),
    ],
)
def test_answers_without_an_observation(stdout, stderr, code, words):
    node = observe(HOST, Recorded(stdout, stderr))
    assert (node.observed, node.unobserved["code"]) == (None, code)
    assert words in node.unobserved["message"]
    assert node.findings == node.plan().refusals == [node.unobserved]
    assert not node.is_sound


def test_defect_of_a_component_is_a_finding(raw):
    node = observe(HOST, Recorded(answer({**raw, "values": {}})))
    assert node.unobserved["code"] == "OBSERVATION_FAILED"
    assert "component" in node.unobserved["message"]


def test_connection_that_ends_in_the_middle():
    with pytest.raises(Unreachable, match="ended during the observation"):
        observe(HOST, Recorded(b"", rc=None))
    begun = f"{node_program.BEGIN}\n".encode()
    assert "not complete" in observe(HOST, Recorded(begun, rc=None)).unobserved["message"]


def test_interpreter_of_the_inventory_comes_first():
    session = Recorded(b"")
    for named, is_used in (("/opt/python", True), ("auto_silent", False), ("{{ x }}", False)):
        observe(Host("n", "n", variables={"ansible_python_interpreter": named}), session)
        assert (f"in {named} " in session.commands[-1]) is is_used


def test_one_that_fails_does_not_stop_the_others(raw):
    def connect(host, _settings):
        if host.name == "odd":
            raise RuntimeError("a defect")
        return Recorded(answer(raw))

    hosts = [Host("odd", "a"), Host("gpu-1", "b")]
    nodes = {node.name: node for node in Fleet(hosts, connect=connect).observe()}
    assert nodes["gpu-1"].observed
    assert nodes["odd"].unobserved["code"] == "OBSERVATION_FAILED"


def test_hosts_by_text(tmp_path):
    [one, two] = Fleet.of(["admin@10.0.0.7:2222", "[fe80::1]:22"]).hosts
    assert (one.user, one.address, one.port) == ("admin", "10.0.0.7", 2222)
    assert (two.address, two.port) == ("fe80::1", 22)
    (tmp_path / "hosts.yml").write_text("all:\n  hosts:\n    a:\n")
    assert [host.name for host in Fleet.from_inventory(tmp_path / "hosts.yml").hosts] == ["a"]
    for wrong in ("", "a b", "a:port", "a:99999", "user@"):
        with pytest.raises(ValueError, match="expected"):
            Host.parse(wrong)


def test_scan(start, known, key):
    """This machine, and two servers that let nobody in and do not exist."""
    server, locked = start(Machine(keys=[key])), start(Machine(password="secret"))
    places = [f"admin@127.0.0.1:{port}" for port in (server.port, locked.port, 1)]
    fleet = Fleet.scan(places, known(server, locked))
    codes = {node.name: (node.unobserved or {}).get("code") for node in fleet.observe()}
    assert codes.pop(f"127.0.0.1-{locked.port}") == "LOGIN_REFUSED"
    assert codes.pop("127.0.0.1-1") == "NODE_UNREACHABLE"
    assert not any(codes.values())  # this machine is in the fleet only if it has GPUs


class TestVerify:
    @pytest.fixture
    def cluster(self, tmp_path):
        with ApiServer() as server:
            yield server, str(server.kubeconfig(tmp_path / "kubeconfig"))

    def put(self, server, name, gpus):
        amounts = {"nvidia.com/gpu": str(gpus)}
        ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        server.put(
            "nodes",
            {
                "metadata": {"name": name, "labels": {"nvidia.com/gpu.present": "true"}},
                "status": {"capacity": amounts, "allocatable": amounts, "conditions": ready},
            },
        )

    def test_machine_and_cluster(self, fleet, cluster):
        server, kubeconfig = cluster
        [node] = fleet.observe()
        self.put(server, node.observed["kubelet"]["node_name"], 2)
        verdict = fleet.verify(kubeconfig)["gpu-1"]
        layers = verdict["layers"]
        assert (layers["pci"], layers["nvml"], layers["capacity"]) == (2, 2, 2)

    def test_cluster_that_has_fewer(self, fleet, cluster):
        server, kubeconfig = cluster
        [node] = fleet.observe()
        self.put(server, node.observed["kubelet"]["node_name"], 1)
        verdict = fleet.verify(kubeconfig)["gpu-1"]
        assert not verdict["ok"]
        assert verdict["layers"]["capacity"] == 1

    def test_amounts_of_the_inventory_can_be_templates(self, raw, cluster):
        server, kubeconfig = cluster
        given = {"gpus": 2, "gpu_count": "{{ gpus }}"}
        more = {"gpu_expected": {"nvidia.com/gpu": "{{ gpus + 1 }}"}}
        hosts = [Host("gpu-1", "a", variables=given), Host("gpu-2", "b", variables=given | more)]
        verdicts = {}
        for host in hosts:
            fleet = Fleet([host], connect=lambda _host, _settings: Recorded(answer(raw)))
            [node] = fleet.observe()
            self.put(server, node.observed["kubelet"]["node_name"], 2)
            verdicts |= fleet.verify(kubeconfig)
        assert verdicts["gpu-1"]["ok"]
        assert not verdicts["gpu-2"]["ok"]
        assert "expected 3 nvidia.com/gpu" in verdicts["gpu-2"]["findings"][0]["message"]

    def test_cluster_that_does_not_answer(self, fleet, tmp_path):
        verdict = fleet.verify(str(tmp_path / "none"))["gpu-1"]
        assert "CLUSTER_UNUSABLE" in [one["code"] for one in verdict["findings"]]
        assert verdict["layers"]["nvml"] == 2

    def test_observation_that_nothing_can_judge(self, raw, tmp_path):
        odd, good = Node(Host("odd", "a"), {}), Node(HOST, interpret(raw))
        found = verdicts.judge([odd, good], str(tmp_path / "none"), None, 0, order=["odd", "gpu-1"])
        assert found["odd"]["findings"][0]["code"] == "OBSERVATION_FAILED"
        assert found["gpu-1"]["layers"]["nvml"] == 2

    def test_two_names_of_one_node(self, raw, tmp_path):
        hosts = [Host("a", "a"), Host("b", "b")]
        fleet = Fleet(hosts, connect=lambda _host, _settings: Recorded(answer(raw)))
        verdicts = fleet.verify(str(tmp_path / "none"))
        assert [*verdicts] == ["a", "b"]
        for verdict in verdicts.values():
            assert "NODE_NAME_TWICE" in [one["code"] for one in verdict["findings"]]

    def test_host_that_was_not_observed(self, tmp_path):
        fleet = Fleet([HOST], connect=lambda _host, _settings: Recorded(b""))
        [found] = fleet.verify(str(tmp_path / "none"))["gpu-1"]["findings"]
        assert found["code"] == "NODE_NOT_OBSERVED"


def test_machines_of_one_address_are_called_as_they_are_written() -> None:
    names = [one.name for one in Host.parse_all(["10.0.0.1", "a@10.0.0.1:2222", "b@10.0.0.2"])]
    assert names == ["10.0.0.1", "a@10.0.0.1:2222", "10.0.0.2"]
