# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What roles say where a scenario would lose its nodes: services that stay down, reboots that halt.

The programs are stand-ins: a systemd whose services do not start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_drain import CORDONED
from ansible_collections.metal.gpu.tests.unit.support.api_server import ApiServer, Refusal
from ansible_collections.metal.gpu.tests.unit.support.playbooks import LOCAL, ROOT, Run, run

SYSTEMCTL = """\
#!/bin/sh
case $* in
*show*) printf 'LoadState=loaded\\nActiveState=inactive\\nUnitFileState=enabled\\n' ;;
*restart*|*start*|*reload*)
    if [ -e "$FOLDER/starts-again" ] && [ -e "$FOLDER/failed" ]; then
        touch "$FOLDER/containerd.sock"; exit 0
    fi
    touch "$FOLDER/failed"
    echo "Job for it failed because the control process exited" >&2; exit 1 ;;
*is-active*) exit 3 ;;
esac
"""
JOURNALCTL = """\
#!/bin/sh
echo "containerd: failed to load TOML"
"""
GPU = "nvidia.com/gpu"


def carry_out(
    folder: Path,
    role: str,
    tasks: str,
    hosts: dict[str, Any],
    *before: dict[str, Any],
    extra: dict[str, Any] | None = None,
    **more: Any,
) -> Run:
    """Carry out one file of tasks, with these programs."""
    path = folder / "bin"
    path.mkdir()
    for name, text in (("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL)):
        (path / name).write_text(text)
        (path / name).chmod(0o755)
    include = {"name": f"metal.gpu.{role}", "tasks_from": tasks}
    play = {
        "hosts": "all:!gpu-0" if "gpu-0" in hosts and before else "all",
        "gather_facts": False,
        "vars": {"ansible_facts": {"service_mgr": "systemd"}, **more},
        "environment": {"PATH": f"{path}:/usr/bin:/bin", "FOLDER": str(folder)},
        "tasks": [{"ansible.builtin.include_role": include}],
    }
    local = {name: {**LOCAL, **variables} for name, variables in hosts.items()}
    words = ["-e", json.dumps(extra)] if extra else []
    return run(folder, [*before, play], {"all": {"hosts": local}}, *words)


class Engine(NamedTuple):
    role: str
    tasks: str
    unit: str  # as the finding names it while it is down, and after it came back
    back: str
    path: str  # what the finding says of the change
    variables: dict[str, Any]


NODE = {"engines": {"containerd": {"path": None}, "docker": {"client_path": None}}}
STEPS = {"steps": [{"slug": "restart_distribution"}]}
RESTARTED = {"unit": "k3s-gpu.service", "socket": "@SOCKET@", "health_url": None}
NO_SOCKET = {"nvidia_container_runtime_socket": {"stat": {"exists": False}}}
ENGINES = [
    Engine(
        "containerd",
        "restart.yml",
        "containerd",
        "containerd",
        "its configuration",
        {"containerd_change": None},
    ),
    Engine("crio", "restart.yml", "crio", "crio", "its configuration", {"crio_change": None}),
    Engine(
        "docker_ce",
        "reload.yml",
        "docker",
        "Docker",
        "/etc/docker/daemon.json",
        {"docker_ce_has_changed": False, "docker_ce_change_path": "/etc/docker/daemon.json"},
    ),
    Engine(
        "nvidia_container_runtime",
        "distribution.yml",
        "k3s-gpu.service",
        "k3s-gpu.service",
        "its PATH",
        NO_SOCKET,
    ),
    Engine(
        "registries",
        "distribution.yml",
        "k3s-gpu.service",
        "k3s-gpu.service",
        "its registries",
        NO_SOCKET,
    ),
]


def restart(folder: Path, engine: Engine) -> Run:
    """Carry out the restart of an engine, without a change that could be taken back."""
    distribution = {**RESTARTED, "socket": str(folder / "containerd.sock")}
    plan = {**STEPS, "data": {"distribution": distribution, "change": None}}
    facts = {"metal_gpu": {"node": NODE, "plans": {engine.role: plan}}, **engine.variables}
    return carry_out(folder, engine.role, engine.tasks, {"gpu-1": facts})


@pytest.mark.parametrize("engine", ENGINES, ids=lambda one: one.role)
def test_engine_that_does_not_start_with_its_former_configuration_either(tmp_path, engine):
    found = restart(tmp_path, engine)
    assert found.code != 0
    assert f"ENGINE_DOWN gpu-1: {engine.unit} does not start, even with its former" in found.words
    assert "containerd: failed to load TOML" in found.words


@pytest.mark.parametrize("engine", ENGINES, ids=lambda one: one.role)
def test_engine_that_starts_only_with_its_former_configuration(tmp_path, engine):
    """The second start succeeds. It creates the socket of a distribution's containerd anew."""
    (tmp_path / "starts-again").touch()
    found = restart(tmp_path, engine)
    assert found.code != 0
    assert f"ENGINE_NOT_BACK gpu-1: {engine.back} did not" in found.words
    assert engine.path in found.words
    assert "containerd: failed to load TOML" in found.words
    assert "ENGINE_DOWN" not in found.words


@pytest.mark.parametrize(
    ("role", "engine", "step"),
    [
        ("containerd", "containerd", "restart_back"),
        *(
            (role, engine, step)
            for role in ("nvidia_container_runtime", "registries")
            for engine, step in (
                ("containerd", "restart"),
                ("crio", "restart_crio"),
                ("k3s-gpu.service", "restart_distribution"),
            )
        ),
    ],
)
def test_engine_that_does_not_start_after_a_removal(tmp_path, role, engine, step):
    """The restored file has no history any more, so there is nothing to take back."""
    edits = ("edits", "containerd_edits", "docker_edits", "crio_edits")
    lists = (*edits, "files", "restore", "gone", "empty")
    data = {"distribution": RESTARTED, "rule": {}, "cdi_drop_in": {}, **{one: [] for one in lists}}
    plan = {"steps": [{"slug": step}], "data": data}
    facts = {"metal_gpu": {"node": NODE, "plans": {role: plan}}}
    found = carry_out(tmp_path, role, "absent.yml", {"gpu-1": facts})
    assert found.code != 0
    assert f"ENGINE_DOWN gpu-1: {engine} does not start" in found.words
    assert "containerd: failed to load TOML" in found.words


def test_kubelet_that_does_not_start_with_its_former_files_either(tmp_path):
    data = {"configuration": [], "daemon_reload": False, "health_url": None}
    plan = {"steps": [], "data": data}
    facts = {
        "metal_gpu": {"plans": {"kubelet_device_plugins": plan}},
        "kubelet_device_plugins_error": "unknown gate",
    }
    found = carry_out(tmp_path, "kubelet_device_plugins", "restore.yml", {"gpu-1": facts})
    assert found.code != 0
    assert "KUBELET_DOWN gpu-1: " in found.words
    assert "unknown gate" in found.words


# -------------------------------------------------------------------------------------------------
# Reboots

KUBELET = {"running": True, "node_name": "gpu-1"}
OBSERVED = {"boot_id": "b", "kubelet": KUBELET, "device_users": []}
IDLE = {**OBSERVED, "engines": {"docker": {"containers": []}}}
SYSTEM = {"os": {"family": "debian"}, "packages": {}, "package_manager": {"interrupted": False}}
PLAN = {"steps": [{"slug": "reboot"}], "data": {}}
REBOOTS = {"metal_gpu": {"node": {**SYSTEM, **IDLE}, "plans": {"nvidia_driver": PLAN}}}


def now(**more: Any) -> dict[str, Any]:
    """Return variables that stand for what a node shows at its reboot."""
    return {"nvidia_driver_users": {"gpu_node": {**IDLE, **more}}}


def reboot(
    folder: Path, tasks: str, hosts: dict[str, Any], *before: dict[str, Any], **variables: Any
) -> Run:
    """Carry out tasks of the driver's role. Variables outweigh what tasks register.

    Ansible refuses to reboot the machine that it runs on, and so stands for a node that stays away.
    """
    return carry_out(folder, "nvidia_driver", tasks, hosts, *before, extra=variables)


def test_no_reboot_after_a_node_that_has_not_come_back(tmp_path):
    """Two nodes reboot in turn. The first stays away, so the second does not go."""
    before = {
        "hosts": "gpu-0",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.group_by": {"key": "nvidia_driver_rebooting"}}],
    }
    hosts = {"gpu-0": {}, "gpu-1": REBOOTS}
    found = reboot(tmp_path, "reboot.yml", hosts, before)
    assert found.code != 0
    assert "REBOOT_HALTED gpu-1: not rebooted, because other nodes did not come back" in found.words
    assert "from their reboot with a driver that works: gpu-0" in found.words


USER = {"pid": 7, "command": "train", "pod": None, "computes": True}
NOTEBOOK = {"name": "notebook", "gpus": True, "of_pod": False}


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param({"device_users": [USER]}, "train (process 7)", id="a process"),
        pytest.param(
            {"engines": {"docker": {"containers": [NOTEBOOK]}}}, "container notebook", id="Docker"
        ),
    ],
)
def test_each_node_that_is_to_reboot_tells_why_it_does_not(tmp_path, seen, words):
    """No kubelet runs. One node after the other, and one line for each: not one for each pair."""
    hosts = {f"gpu-{number}": REBOOTS for number in range(3)}
    variables = now(kubelet={"running": False, "node_name": ""}, **seen)
    found = reboot(tmp_path, "present.yml", hosts, **variables)
    assert found.code != 0
    for host in hosts:
        text = f"REBOOT_BLOCKED {host}: the node needs a reboot, but its GPUs are in use: {words}"
        assert text in found.words
    assert found.output.count("(item=") == len(hosts)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        server.put("nodes", {"metadata": {"name": "gpu-1"}, "spec": {}, "status": {}})
        yield server


def put(server: ApiServer, name: str, gpus: int, owner: str) -> None:
    """Put a pod on the node. No container of a pod without a controller starts again."""
    owners = [{"kind": owner, "controller": True}] if owner else []
    metadata = {"name": name, "namespace": "ml", "ownerReferences": owners}
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: gpus} if gpus else {}}}
    spec = {"nodeName": "gpu-1", "containers": [container]}
    server.put("pods", {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})


@pytest.mark.parametrize(
    ("gpus", "owner", "cluster", "words"),
    [
        pytest.param(2, "Job", {}, "REBOOT_BLOCKED gpu-1: .* in use: ml/training", id="GPUs"),
        pytest.param(
            0, "", {}, "REBOOT_UNDRAINED gpu-1: .* ml/training on gpu-1: it has no contr", id="bare"
        ),
        pytest.param(
            0,
            "Job",
            {"wait": True},
            "REBOOT_UNDRAINED gpu-1: .* still run when time is up:",
            id="time up",
        ),
        pytest.param(0, "Job", {"gone": True}, "NODE_NOT_IN_CLUSTER gpu-1: ", id="not joined"),
        pytest.param(0, "Job", {"silent": True}, "CLUSTER_UNUSABLE ", id="no answer"),
        pytest.param(0, "Job", {}, "would reboot the control node", id="drained"),
    ],
)
def test_when_a_node_of_a_cluster_reboots(tmp_path, server, gpus, owner, cluster, words):
    """Only drained, and a node that stays away stays cordoned."""
    put(server, "training", gpus, owner)
    if cluster.get("wait"):
        server.budgets["training"] = lambda: None
    if cluster.get("gone"):
        server.take("nodes", "gpu-1")
    if cluster.get("silent"):
        server.refusals["list", "pods"] = Refusal(403, "no")
    kubeconfig = str(server.kubeconfig(tmp_path / "kubeconfig"))
    wait = {"nvidia_driver_reboot_drain_timeout": 0 if cluster.get("wait") else 30}
    found = reboot(
        tmp_path,
        "reboot.yml",
        {"gpu-1": REBOOTS},
        **{**now(), **wait, "metal_gpu_kubeconfig": kubeconfig},
    )
    assert found.code != 0
    assert re.search(words, found.words)
    node = server.objects().get(("nodes", "", "gpu-1"), {"spec": {}})
    assert bool(node["spec"].get("unschedulable")) is ("control node" in words)


def test_no_second_reboot_after_one_by_hand(tmp_path):
    """The plan is hours old. The driver that the admin has booted is proven like any other."""
    found = reboot(
        tmp_path,
        "reboot.yml",
        {"gpu-1": REBOOTS},
        **now(boot_id="c", device_users=[USER], kubelet={"running": False, "node_name": ""}),
    )
    assert "Prove that no step remains" in found.words
    assert "REBOOT" not in found.words
    assert "control node" not in found.words


@pytest.mark.parametrize("slug", ["stop_fabric", "unload", "uninstall"])
def test_no_driver_goes_while_its_gpus_are_in_use(tmp_path, slug):
    """Nor does Fabric Manager: on some machines, all computations end with it."""
    plan = {"steps": [{"slug": slug}], "data": {"modules": []}}
    facts = {"metal_gpu": {"node": SYSTEM, "plans": {"nvidia_driver": plan}}}
    variables = now(device_users=[USER], kubelet={"running": False, "node_name": ""})
    found = reboot(tmp_path, "remove.yml", {"gpu-1": facts}, **variables)
    assert "DRIVER_IN_USE gpu-1: " in found.words
    assert "train (process 7)" in found.words
    assert not (tmp_path / "failed").exists()  # no service was touched


def test_a_teardown_that_fails_after_its_drain_leaves_no_cordon(tmp_path, server):
    """The device plugin stays, so the pods may come back."""
    mark = {"annotations": {CORDONED: "a 4"}}
    for spec, metadata in (({"unschedulable": True}, mark), ({"unschedulable": True}, {})):
        ours = bool(metadata)
        server.put("nodes", {"metadata": {"name": "gpu-1", **metadata}, "spec": spec, "status": {}})
        kubeconfig = str(server.kubeconfig(tmp_path / "kubeconfig"))
        facts = {"metal_gpu": {"node": IDLE}, "metal_gpu_kubeconfig": kubeconfig}
        folder = tmp_path / str(ours)
        folder.mkdir()
        found = carry_out(folder, "teardown", "give_up.yml", {"gpu-1": facts})
        assert found.code != 0
        node = server.objects()["nodes", "", "gpu-1"]
        assert bool(node["spec"].get("unschedulable")) is not ours
    (block,) = yaml.safe_load((ROOT / "playbooks/teardown.yml").read_text())[3]["tasks"]
    assert [one["ansible.builtin.import_role"]["tasks_from"] for one in block["rescue"]] == [
        "give_up.yml"
    ]


@pytest.mark.parametrize("drain", [True, False])
def test_teardown_asks_what_packages_take_along_before_it_evicts_pods(tmp_path, drain):
    """Pods do not come back because a package of an admin needs the driver."""
    first, second = yaml.safe_load((ROOT / "playbooks/teardown.yml").read_text())[2:4]
    assert "drain.yml" in str(second)
    (task,) = (one for one in first["tasks"] if "metal.gpu.packages" in one)
    assert task["check_mode"] is True
    task["ansible.builtin.copy"] = {"dest": str(tmp_path / "asked"), "content": "{{ names }}"}
    task |= {"vars": {"names": task.pop("metal.gpu.packages")["names"]}, "check_mode": False}
    remove, edit = {"packages": ["nvidia-driver"]}, {"packages": ["containerd.io"]}
    plans = {
        "nvidia_driver": {"steps": [{"slug": "remove"}], "data": remove},
        "containerd": {"steps": [{"slug": "config"}], "data": edit},
    }
    known = {"preflight_drain": drain, "metal_gpu": {"plans": plans}}
    local = {**LOCAL, "metal_gpu_run": {"work": {"gpu-1": []}}}
    play = [{"hosts": "gpu-1", "gather_facts": False, "tasks": first["tasks"]}]
    groups = {"all": {"hosts": {"gpu-1": {**LOCAL, **known}, "localhost": local}}}
    assert run(tmp_path, play, groups).code == 0
    asked = tmp_path / "asked"
    assert (asked.read_text() if asked.exists() else "") == ('["nvidia-driver"]' if drain else "")


def test_node_that_keeps_its_gpus_does_not_hold_up_the_others_of_a_teardown(tmp_path, server):
    """It has failed, and its rescue, which uncordons it, comes after the release of the others."""
    for name, gpus in (("gpu-1", "0"), ("gpu-2", "2")):
        cordoned = {"name": name, "annotations": {CORDONED: f"run {gpus}"}}
        status = {
            "allocatable": {GPU: gpus},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        spec = {"unschedulable": True}
        server.put("nodes", {"metadata": cordoned, "spec": spec, "status": status})
    names = ["gpu-1", "gpu-2"]
    found = carry_out(
        tmp_path,
        "teardown",
        "release.yml",
        {name: {"metal_gpu": {"node": {"kubelet": {"node_name": name}}}} for name in names},
        device_plugin_findings={"gpu-2": []},
        preflight_holders={"nodes": {name: {"pods": [], "cordoned": True} for name in names}},
        teardown_drain_timeout=0,
        metal_gpu_kubeconfig=str(server.kubeconfig(tmp_path / "kubeconfig")),
    )
    assert found.code == 0, found.output
    cordons = [server.objects()["nodes", "", name]["spec"].get("unschedulable") for name in names]
    assert cordons == [None, True]


@pytest.mark.parametrize(
    ("pods", "cordoned", "lines"),
    [
        ([], False, []),
        (["ml/job", "ml/b"], False, ["Evict the pods that hold GPUs (ml/job, ml/b)", "Uncordon"]),
        ([], True, ["Uncordon the node (the drain cordons it)"]),  # a teardown was cut short
    ],
)
def test_a_drain_is_announced(tmp_path, pods, cordoned, lines):
    row = {"pods": [{"name": name} for name in pods], "cordoned": cordoned}
    facts = {"metal_gpu": {"node": {"kubelet": {"node_name": "n"}}}}
    facts["preflight_holders"] = {"nodes": {"n": row}}
    found = carry_out(tmp_path, "teardown", "drain.yml", {"gpu-1": facts}, check_mode=True)
    shown = found.output.partition("Announce the plan")[2].partition("TASK")[0]
    assert shown.count('"\n') + shown.count('",\n') == len(lines), found.output
    assert all(line in shown for line in lines)
