# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes with Debian's containerd 1.6.20 (gpu-1) and 1.7.24 (gpu-2) after site.yml."""

from __future__ import annotations

import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from typing import Any

import explained
import leaks
import pytest

from metal_lab import programs

CONFIG = "/etc/containerd/config.toml"
CRI = "io.containerd.grpc.v1.cri"
VERSIONS = {"gpu-1": "1.6.20", "gpu-2": "1.7.24"}
REGISTRIES = ("metal.gpu.site", "--limit=gpu-1", "--tags=registries")
NEWER = "/etc/containerd/conf.d/99-nvidia.toml"

# The image sets NVIDIA_VISIBLE_DEVICES=all, as every CUDA image does. The pod requests no GPU.
UNASKED = """
apiVersion: v1
kind: Pod
metadata: {{name: unasked-{node}, namespace: default}}
spec:
  restartPolicy: Never
  nodeName: {node}
  containers:
    - name: cuda
      image: nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04
      command: [sh, -c, "ls /dev | grep -c nvidia; true"]
"""


def effective(laboratory: Any, node: str) -> Any:
    dump = laboratory.host(node).check_output("containerd --config %s config dump", CONFIG)
    return tomllib.loads(dump)["plugins"][CRI]


def test_engine_of_the_distribution_stays(laboratory, node):
    info = laboratory.objects("node", node)["status"]["nodeInfo"]
    assert info["containerRuntimeVersion"] == f"containerd://{VERSIONS[node]}"
    installed = laboratory.host(node).check_output("dpkg-query -W -f '${Package} ' '*containerd*'")
    assert "containerd.io" not in installed


def test_runtimes_and_the_admins_settings(laboratory, node):
    cri = effective(laboratory, node)
    runtimes = cri["containerd"]["runtimes"]
    assert runtimes["nvidia"]["options"] == {
        "BinaryName": "/usr/bin/nvidia-container-runtime",
        "SystemdCgroup": True,
    }
    assert runtimes["runc"]["options"] == {"SystemdCgroup": True}
    assert cri["containerd"]["default_runtime_name"] == {"gpu-1": "nvidia", "gpu-2": "runc"}[node]
    assert cri.get("enable_cdi") == {"gpu-1": None, "gpu-2": True}[node]
    assert cri["max_container_log_line_size"] == 32768
    assert cri["cni"]["bin_dir"] == "/usr/lib/cni"
    config = laboratory.host(node).file(CONFIG).content_string
    assert "# mirrored in house" in config
    assert "# as the kubelet" in config


def test_pod_that_requests_no_gpu(laboratory, node):
    """On containerd 1.6, which has no CDI, the guard is what keeps the GPUs from the pod."""
    name = f"pod/unasked-{node}"
    laboratory.kubectl("apply", "-f", "-", stdin=UNASKED.format(node=node))
    try:
        laboratory.kubectl(
            "wait", "--for=jsonpath={.status.phase}=Succeeded", name, "--timeout=60s"
        )
        assert laboratory.kubectl("logs", name).strip() == "0"
    finally:
        laboratory.kubectl("delete", name)


def recorded(laboratory: Any, node: str, case: str, attempts: dict[str, str]) -> None:
    """Compare the results of a node with its row of docs/isolation.md, or record them."""
    engine = f"containerd {VERSIONS[node]}"
    kubernetes = laboratory.facts["versions"]["kubernetes"]
    leaks.compare(f"{engine}{case}", attempts, engine, kubernetes)


def test_no_container_gets_a_gpu_that_it_did_not_request(laboratory):
    """gpu-1 needs the guard, which then is there for all nodes of the cluster."""
    run, found = leaks.run(laboratory)
    assert run.returncode == 0
    assert {*found} == {*VERSIONS}
    for attempts in found.values():
        assert {*attempts.values()} <= {"nothing", "refused", "by design"}
        assert all(attempts[name] == "nothing" for name in leaks.BY_IMAGE)
        assert attempts["pod_variable"] == "refused"
    recorded(laboratory, "gpu-1", ", default runtime nvidia, guard", found["gpu-1"])
    recorded(laboratory, "gpu-2", ", guard", found["gpu-2"])


@pytest.fixture
def no_guard(laboratory: Any) -> Iterator[None]:
    leaks.site(laboratory, device_plugin_guard="none")
    yield
    leaks.site(laboratory)


def test_without_the_guard_only_the_node_with_cdi_is_safe(laboratory, no_guard):
    run, found = leaks.run(laboratory)
    assert run.returncode != 0
    assert {*found} == {*VERSIONS}
    leaked = {node: leaks.leaked(attempts) for node, attempts in found.items()}
    by_variable = leaks.BY_IMAGE | {"pod_variable"}
    assert by_variable <= leaked["gpu-1"]
    assert leaked["gpu-2"].isdisjoint(by_variable)
    assert all(attempts["plain"] == "nothing" for attempts in found.values())
    assert "GPU_LEAKED gpu-1: containers that request no GPU see GPUs" in run.words
    recorded(laboratory, "gpu-1", ", default runtime nvidia, no guard", found["gpu-1"])
    recorded(laboratory, "gpu-2", "", found["gpu-2"])


def test_cdi_is_refused_by_name_on_containerd_1_6(laboratory):
    run = laboratory.playbook("metal.gpu.site", "-e", '{"nvidia_container_runtime_cdi": true}')
    assert run.returncode != 0
    assert "Nothing was changed" in run.output
    assert "CDI_UNSUPPORTED gpu-1: containerd 1.6.20 cannot read" in " ".join(run.output.split())
    assert "CDI_UNSUPPORTED gpu-2" not in run.output


def started(laboratory: Any, node: str) -> str:
    command = "systemctl show --value -p ActiveEnterTimestampMonotonic containerd"
    return str(laboratory.host(node).check_output(command))


@pytest.fixture
def broken_registry(laboratory: Any, node: str) -> Iterator[None]:
    """The admin adds the other form of mirrors, and has not restarted containerd yet."""
    host = laboratory.host(node)
    table = f'[plugins."{CRI}".registry'
    lines = f'{table}.mirrors."x"]\nendpoint = ["http://x"]\n'
    if "config_path" not in host.file(CONFIG).content_string:  # the role registries may have set it
        lines = f'{table}]\nconfig_path = "/etc/c"\n{lines}'
    host.check_output("cp --preserve=all %s /root/config.toml", CONFIG)
    host.check_output("sh -c %s", f"printf %s {shlex.quote(lines)} >> {CONFIG}")
    yield
    host.check_output("mv /root/config.toml %s", CONFIG)


def test_restart_that_would_end_the_cri_plugin_is_refused(laboratory, node, broken_registry):
    before = started(laboratory, node)
    # What only this node has otherwise, so the run has something to write and a restart to plan.
    default = {"gpu-1": "false", "gpu-2": "true"}[node]
    run = laboratory.playbook("metal.gpu.site", "-e", f"nvidia_container_runtime_default={default}")
    assert run.returncode != 0
    assert f"CONTAINERD_FATAL {node}: " in run.output
    assert "config_path and mirrors are both set" in " ".join(run.output.split())
    assert started(laboratory, node) == before


@pytest.fixture
def newer_drop_in(laboratory: Any) -> Iterator[None]:
    """A tool that writes for containerd 2.3 adds a drop-in below main files of version 2."""
    folder = NEWER.rpartition("/")[0]
    imports = f'/^version = /a imports = ["{folder}/*.toml"]'
    hosts = [laboratory.host(name) for name in VERSIONS]
    for host in hosts:
        host.check_output("cp --preserve=all %s /root/config.toml", CONFIG)
        host.check_output("mkdir %s && echo version = 4 > %s", folder, NEWER)
        host.check_output("sed --in-place %s %s", imports, CONFIG)
    yield
    for host in hosts:
        host.check_output("mv /root/config.toml %s && rm -r %s", CONFIG, folder)


@pytest.fixture
def containerd_2_3(laboratory: Any) -> Iterator[None]:
    """gpu-2 has this program, and the process of 1.7 runs on: a package was just upgraded."""
    host, copy, place = laboratory.host("gpu-2"), "/root/containerd", "/usr/bin/containerd"
    container = laboratory.facts["nodes"]["gpu-2"]["container"]
    program = programs.build("containerd-2.3") / "containerd"
    subprocess.run(["docker", "cp", program, f"{container}:{copy}"], check=True)
    host.check_output("mount --bind %s %s", copy, place)
    yield
    host.check_output("umount %s && rm %s", place, copy)


def judged(laboratory: Any, node: str) -> tuple[str, Any]:
    """Return what the program of a node says of its configuration, and a run in check mode."""
    said = laboratory.host(node).run("containerd --config %s config dump", CONFIG)
    run = laboratory.playbook("metal.gpu.site", "--tags=runtime", f"--limit={node}", "--check")
    assert (said.rc == 0) is (run.returncode == 0)
    return said.stderr, run


def refused_with(laboratory: Any, words: str) -> None:
    said, run = judged(laboratory, "gpu-2")
    assert words in said
    assert "CONTAINERD_CONFIG_INVALID gpu-2: containerd's configuration is not valid" in run.words
    assert words in run.words
    assert explained.first(said).code == "CONTAINERD_CONFIG_INVALID"


def test_drop_in_that_is_newer_than_the_main_file(laboratory, newer_drop_in):
    """1.6 ignores it. 1.7 would not start again, and the role says so before a change."""
    _said, run = judged(laboratory, "gpu-1")
    assert run.returncode == 0
    refused_with(laboratory, "unsupported config version `4`")


def test_drop_in_that_containerd_2_3_does_not_merge(laboratory, newer_drop_in, containerd_2_3):
    refused_with(laboratory, "drop-in config version 4 higher than root config version 2")


def test_file_that_another_tool_writes_again(laboratory, node):
    """It restores its own file and restarts containerd. Only our keys come back."""
    host = laboratory.host(node)
    ours = host.file(CONFIG).content_string
    folder = "/var/lib/metal-gpu/config_document"
    # The oldest copy is from before the first edit, whichever role made it.
    copies = host.check_output("ls --sort=time --reverse %s", folder).splitlines()
    theirs = next(one for one in copies if "config.toml@" in one and one.endswith(".orig"))
    host.check_output("cp %s %s", f"{folder}/{theirs}", CONFIG)
    host.check_output("systemctl restart containerd")
    run = laboratory.playbook("metal.gpu.site")
    assert run.returncode == 0
    assert "Register the NVIDIA runtime" in run.output
    assert f"; something else has changed {CONFIG} since this role wrote it" in run.words
    assert host.file(CONFIG).content_string == ours


@pytest.fixture
def strict(laboratory: Any) -> Iterator[str]:
    """containerd of gpu-1 does not start while its file names the folders of registries."""
    test, said = f"! grep -q config_path {CONFIG}", "site policy: no mirrors"
    laboratory.lab("fault", "gpu-1", "refuse-start", "containerd", test, said)
    yield said
    laboratory.lab("fault", "gpu-1", "permit-start", "containerd")
    laboratory.host("gpu-1").check_output("rmdir /etc/systemd/system/containerd.service.d")
    # The other tests need the registries.
    assert laboratory.playbook(*REGISTRIES).returncode == 0
    assert "config_path" in laboratory.host("gpu-1").file(CONFIG).content_string


def test_first_registries_with_which_containerd_does_not_come_back(laboratory, strict, tmp_path):
    """Later ones need no restart, so gpu-1 loses its registries before."""
    host = laboratory.host("gpu-1")

    def clear(group: Any) -> None:
        group["hosts"]["gpu-1"]["registries_hosts"] = []

    none = laboratory.inventory_with(tmp_path / "inventory.yml", clear)
    assert laboratory.playbook(*REGISTRIES, inventory=none).returncode == 0
    before = host.file(CONFIG).content_string
    assert "config_path" not in before
    (pod,) = laboratory.objects("pod", "admin")["status"]["containerStatuses"]
    run = laboratory.playbook(*REGISTRIES, "-vvvv")
    assert run.returncode != 0
    assert f"{CONFIG}, and runs with its former configuration: {strict}" in run.words
    assert "ENGINE_NOT_BACK gpu-1: containerd did not" in run.words
    assert laboratory.facts["registry"]["password"] not in run.output
    assert host.file(CONFIG).content_string == before
    assert host.check_output("systemctl is-active containerd") == "active"
    laboratory.kubectl("wait", "--for=condition=Ready", "node/gpu-1", "--timeout=60s")
    (after,) = laboratory.objects("pod", "admin")["status"]["containerStatuses"]
    assert (after["containerID"], after["restartCount"]) == (pod["containerID"], 0)
