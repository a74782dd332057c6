# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes of k3s and k0s after site.yml: containerd and the kubelet are real, below stand-ins.

Tests share the nodes, and come in the order of this file. test_teardown.py comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from distribution_nodes import K0S_DROP_IN, K3S, runtimes

OPERATIONS_ALLOWED = 1
ROLE = "metal.gpu.nvidia_container_runtime"
K3S_DROP_IN = f"{K3S}/config-v3.toml.d/99-metal-gpu.toml"
POD = """
apiVersion: v1
kind: Pod
metadata: {name: cuda-NODE, namespace: default}
spec:
  restartPolicy: Never
  nodeSelector: {kubernetes.io/hostname: NODE}
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists, effect: NoExecute}] # its node is away for minutes
  containers:
    - name: cuda
      image: nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04
      command: [sh, -c, "nvidia-smi -L && sleep 3600"]
      resources: {limits: {nvidia.com/gpu: 1}}
"""


def role(laboratory: Any, tmp_path: Any, node: str, *options: str) -> Any:
    play = tmp_path / "role.yml"
    play.write_text(f"- hosts: {node}\n  gather_facts: false\n  become: true\n  roles: [{ROLE}]\n")
    return laboratory.playbook(str(play), *options)


def test_check_announced_what_converge_did(check_and_converge):
    check, converge = check_and_converge
    assert check.announced
    assert check.announced <= converge.ran
    # Changes of the cluster run once, on any host. Check mode sends them as a dry run.
    rehearsed = {task for _host, task in check.changed}
    assert {task for _host, task in converge.unannounced} <= rehearsed


def test_k3s_found_the_toolkit_by_itself(laboratory):
    host = laboratory.host("gpu-1")
    generated = host.file(f"{K3S}/config.toml").content_string
    assert "/usr/bin/nvidia-container-runtime" in generated
    assert not host.file(K3S_DROP_IN).exists


def test_k0s_reads_the_drop_in(laboratory):
    host = laboratory.host("gpu-2")
    assert host.file(K0S_DROP_IN).content_string.startswith("version = 3\n")
    assert "nvidia" not in host.file("/etc/k0s/containerd.toml").content_string
    assert "/usr/bin/nvidia-container-runtime" in runtimes(laboratory, "gpu-2")


def test_the_containerd_of_the_host_is_left_alone(laboratory, node):
    host = laboratory.host(node)
    assert "nvidia" not in host.file("/etc/containerd/config.toml").content_string
    assert not host.service("containerd").is_running


def test_a_pod_gets_its_gpu(laboratory, node):
    laboratory.kubectl("apply", "-f", "-", stdin=POD.replace("NODE", node))
    laboratory.kubectl("wait", "--for=condition=Ready", f"pod/cuda-{node}", "--timeout=60s")
    assert laboratory.kubectl("logs", f"cuda-{node}").count("GPU ") == 1


def test_second_run_changes_nothing_and_is_cheap(laboratory, tmp_path):
    play = tmp_path / "role.yml"
    play.write_text(
        f"- hosts: gpu_nodes\n  gather_facts: false\n  become: true\n  roles: [{ROLE}]\n"
    )
    counts = laboratory.second_run(str(play), OPERATIONS_ALLOWED)
    print(f"\nrole alone: {counts} remote operations for a no-change run")


def test_second_run_of_the_playbook_changes_nothing(laboratory):
    run = laboratory.playbook("metal.gpu.site")
    assert run.returncode == 0
    assert {*laboratory.addresses} <= {*run.unchanged}


def test_restart_without_permission_is_refused_before_a_change(laboratory, tmp_path):
    host = laboratory.host("gpu-1")
    run = role(
        laboratory,
        tmp_path,
        "gpu-1",
        *("-e", "nvidia_container_runtime_restart_ok=false"),
        *("-e", "nvidia_container_runtime_default=true"),
    )
    assert run.returncode != 0
    assert "DISTRIBUTION_RESTART gpu-1: k3s-agent.service needs a restart" in run.output
    assert not host.file(K3S_DROP_IN).exists


@pytest.mark.parametrize("wish", [True, False])
def test_default_runtime_comes_and_goes_and_pods_keep_running(laboratory, tmp_path, node, wish):
    run = role(
        laboratory, tmp_path, node, "-e", f"nvidia_container_runtime_default={str(wish).lower()}"
    )
    assert run.returncode == 0
    assert ("default_runtime_name = 'nvidia'" in runtimes(laboratory, node)) is wish
    pod = laboratory.objects("pod", f"cuda-{node}")
    (status,) = pod["status"]["containerStatuses"]
    assert (status["restartCount"], "running" in status["state"]) == (0, True)


def test_a_drop_in_with_which_k0s_does_not_start_again(laboratory, tmp_path):
    host = laboratory.host("gpu-2")
    path = "/etc/k0s/containerd.d/nvidia.toml"
    host.check_output(f"sh -c 'printf \"version = 2\\n\" > {path}'")
    run = role(laboratory, tmp_path, "gpu-2")
    assert run.returncode != 0
    assert f"DROP_IN_FORMER gpu-2: the drop-in {path}" in run.output
    host.check_output(f"rm {path}")


REGISTRIES = "/etc/rancher/k3s/registries.yaml"
FAULT = "/etc/systemd/system/k3s-agent.service.d/fault.conf"
K0S_CHECK = "/var/lib/k0s/bin/check"  # of the stand-in, before it starts containerd
SAID = "site policy: not with this"


def container(laboratory: Any, node: str) -> tuple[str, int]:
    """Return the container of the pod with a GPU, and how often it was started again."""
    (status,) = laboratory.objects("pod", f"cuda-{node}")["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]


@pytest.fixture
def refuse(laboratory: Any) -> Iterator[Callable[[str], None]]:
    """Return a function that keeps k3s from starting while a test succeeds."""
    host, folder = laboratory.host("gpu-1"), FAULT.rpartition("/")[0]

    def write(test: str) -> None:
        command = f"ExecStartPre=/bin/sh -c 'if {test}; then echo {SAID}; exit 1; fi'"
        # So seldom that systemd does not give up before the role has restored the file.
        text = f"[Service]\nRestartSec=5s\n{command}\n"
        host.check_output(f"mkdir {folder}; printf %s > {FAULT}; systemctl daemon-reload", text)

    yield write
    host.check_output(f"rm -r {folder}; systemctl daemon-reload")


def test_k3s_that_does_not_start_with_the_runtime_gets_its_former_files(
    laboratory, tmp_path, refuse
):
    host = laboratory.host("gpu-1")
    # It has the runtime, since nvidia was the default runtime for a while.
    drop_in = host.file(K3S_DROP_IN).content_string
    before = runtimes(laboratory, "gpu-1"), container(laboratory, "gpu-1")
    refuse(f"grep --quiet default_runtime_name {K3S_DROP_IN}")
    run = role(laboratory, tmp_path, "gpu-1", "-e", "nvidia_container_runtime_default=true")
    assert run.returncode != 0
    assert "ENGINE_NOT_BACK gpu-1: k3s-agent.service did not" in run.words
    assert f"{K3S_DROP_IN}, and runs with its former configuration: {SAID}" in run.words
    assert host.file(K3S_DROP_IN).content_string == drop_in
    assert host.check_output("systemctl is-active k3s-agent") == "active"
    laboratory.kubectl("wait", "--for=condition=Ready", "node/gpu-1", "--timeout=60s")
    assert (runtimes(laboratory, "gpu-1"), container(laboratory, "gpu-1")) == before


def test_k3s_that_does_not_start_with_the_mirrors_gets_its_former_file(
    laboratory, tmp_path, refuse
):
    def add(group: Any) -> None:
        hosts = group["hosts"]["gpu-1"]["registries_hosts"]
        hosts.append({**hosts[0], "host": "fault.example"})

    host = laboratory.host("gpu-1")
    before = host.check_output(f"sha256sum {REGISTRIES}")
    refuse(f"grep --quiet fault.example {REGISTRIES}")
    run = laboratory.playbook(
        *("metal.gpu.site", "--tags=registries", "--limit=gpu-1,localhost"),
        inventory=laboratory.inventory_with(tmp_path / "inventory.yml", add),
    )
    assert run.returncode != 0
    assert "ENGINE_NOT_BACK gpu-1: " in run.words
    assert f"{REGISTRIES}, and runs with its former configuration: {SAID}" in run.words
    assert host.check_output(f"sha256sum {REGISTRIES}") == before
    laboratory.kubectl("wait", "--for=condition=Ready", "node/gpu-1", "--timeout=60s")


@pytest.fixture
def strict(laboratory: Any) -> Iterator[None]:
    """The containerd of k0s does not start with another default runtime."""
    host, test = laboratory.host("gpu-2"), f"grep --quiet default_runtime_name {K0S_DROP_IN}"
    text = f"#!/bin/sh\nif {test}; then echo {SAID}; exit 1; fi\n"
    host.check_output(f"printf %s > {K0S_CHECK}; chmod 755 {K0S_CHECK}", text)
    yield
    host.check_output(f"rm {K0S_CHECK}")


def test_k0s_whose_containerd_does_not_start_gets_its_former_drop_in(laboratory, tmp_path, strict):
    """k0s restarts it by itself, so the role waits for two minutes before it restores the file."""
    host = laboratory.host("gpu-2")
    drop_in = host.file(K0S_DROP_IN).content_string
    before = runtimes(laboratory, "gpu-2"), container(laboratory, "gpu-2")
    run = role(laboratory, tmp_path, "gpu-2", "-e", "nvidia_container_runtime_default=true")
    assert run.returncode != 0
    assert "ENGINE_NOT_BACK gpu-2: k0sworker.service did not" in run.words
    assert f"{K0S_DROP_IN}, and runs with its former configuration: {SAID}" in run.words
    assert host.file(K0S_DROP_IN).content_string == drop_in
    assert host.check_output("systemctl is-active k0sworker") == "active"
    laboratory.kubectl("wait", "--for=condition=Ready", "node/gpu-2", "--timeout=60s")
    assert (runtimes(laboratory, "gpu-2"), container(laboratory, "gpu-2")) == before


def test_a_stopped_distribution_is_named_and_not_started(laboratory, tmp_path):
    host = laboratory.host("gpu-1")
    host.check_output("systemctl stop k3s-agent")
    run = role(laboratory, tmp_path, "gpu-1")
    assert "DISTRIBUTION_STOPPED gpu-1: the containerd of k3s (k3s-agent.service)" in run.output
    assert not host.service("k3s-agent").is_running
    host.check_output("systemctl start k3s-agent")
    laboratory.kubectl("wait", "--for=condition=Ready", "node/gpu-1", "--timeout=60s")


def test_another_containerd_that_runs_is_named(laboratory):
    host = laboratory.host("gpu-1")
    host.check_output("systemctl start containerd")
    run = laboratory.playbook("metal.gpu.site", "--check", "--limit", "gpu-1")
    assert "ENGINE_BESIDE gpu-1: containerd runs beside the containerd of k3s" in run.output
    host.check_output("systemctl stop containerd")
