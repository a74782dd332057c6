# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What roles say where a scenario would lose its nodes: services that stay down, reboots that halt.

The programs are stand-ins: a systemd whose services do not start.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ansible_collections.metal.gpu.tests.unit.support.api_server import ApiServer
from ansible_collections.metal.gpu.tests.unit.support.playbooks import LOCAL, Run, run

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
    folder: Path, role: str, tasks: str, hosts: dict[str, Any], *before: dict[str, Any], **more: Any
) -> Run:
    """Carry out one file of tasks, with these programs."""
    path = folder / "bin"
    path.mkdir()
    for name, text in (("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL)):
        (path / name).write_text(text)
        (path / name).chmod(0o755)
    include = {"name": f"metal.gpu.{role}", "tasks_from": tasks}
    play = {
        "hosts": "gpu-1",
        "gather_facts": False,
        "vars": {"ansible_facts": {"service_mgr": "systemd"}, **more},
        "environment": {"PATH": f"{path}:/usr/bin:/bin", "FOLDER": str(folder)},
        "tasks": [{"ansible.builtin.include_role": include}],
    }
    local = {name: {**LOCAL, **variables} for name, variables in hosts.items()}
    return run(folder, [*before, play], {"all": {"hosts": local}})


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

RUNNING = {"metal_gpu": {"node": {"kubelet": {"running": True, "node_name": "gpu-1"}}}}


def test_no_reboot_after_a_node_that_has_not_come_back(tmp_path):
    """Two nodes reboot in turn. The first stays away, so the second does not go."""
    before = {
        "hosts": "gpu-0",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.group_by": {"key": "nvidia_driver_rebooting"}}],
    }
    hosts = {"gpu-0": {}, "gpu-1": RUNNING}
    found = carry_out(tmp_path, "nvidia_driver", "reboot.yml", hosts, before)
    assert found.code != 0
    assert "REBOOT_HALTED gpu-1: not rebooted, because other nodes did not come back" in found.words
    assert "from their reboot: gpu-0" in found.words


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def test_no_reboot_while_pods_hold_gpus(tmp_path, server):
    metadata = {"name": "training", "namespace": "ml"}
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: "2"}}}
    server.put("nodes", {"metadata": {"name": "gpu-1"}, "spec": {}, "status": {}})
    spec = {"nodeName": "gpu-1", "containers": [container]}
    server.put("pods", {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})
    path = server.kubeconfig(tmp_path / "kubeconfig")
    variables = {"metal_gpu_kubeconfig": str(path), "nvidia_driver_reboot_drain": True}
    found = carry_out(tmp_path, "nvidia_driver", "drain.yml", {"gpu-1": RUNNING}, **variables)
    assert found.code != 0
    assert "REBOOT_BLOCKED gpu-1: the node needs a reboot, but pods hold GPUs" in found.words
    assert "ml/training" in found.words
    assert server.made("patch", "nodes") == []
