# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes break that were proven: each in another way, all in one run of metal.gpu.verify.

gpu-3 has no device plugin, which its verdict says each time: what breaks there is judged by the
plans of the roles.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from breaks import NODE, Break, broken, edit, hardware, of_lab, offers, stop

NO_PLUGIN = "DEVICE_PLUGIN_NOT_SELECTED"
PLUGINS = ("gpu-1", "gpu-2")
TOML = "/etc/containerd/config.toml"
JSON = "/etc/docker/daemon.json"
RUNTIME = "/usr/bin/nvidia-container-runtime"


HUNG = "kill -s {} $(systemctl show --property=MainPID --value kubelet)"
COPIES = "/var/lib/metal-gpu/config_document"
BEFORE = f"{COPIES}/{TOML.replace('/', '%2F')}@metal.gpu.nvidia_container_runtime.orig"
WITHOUT_RUNTIME = f"cp --preserve {BEFORE} {TOML}"
OTHER_DEFAULT = f"""sed -i 's/"default-runtime": "nvidia"/"default-runtime": "runc"/' {JSON}"""
MARK = rf"sed -i '1s/^/\xef\xbb\xbf/' {JSON}"
UNHOLD, HOLD = "apt-mark unhold nvidia-driver-cuda", "apt-mark hold nvidia-driver-cuda"
NO_CDI = "mv /var/run/cdi/nvidia.yaml /root/nvidia.yaml"
UVM = "/dev/nvidia-uvm"
NO_UVM, CREATE = f"rm {UVM}", "nvidia-modprobe -c 0 -u"
NVML = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.178.04"
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
CPUS = "/var/lib/kubelet/cpu_manager_state"
KUBELET = "systemctl restart kubelet"
STORM = (
    "for number in $(seq 60); do"
    " /usr/bin/python3 /usr/local/lib/metal-lab/hardware.py fault xid 0 48; done"
)
RESTART = "systemctl restart containerd"
RELOAD = "systemctl reload docker"

GROUPS = {
    "services": (
        stop("KUBELET_STOPPED", "kubelet"),
        stop("ENGINE_STOPPED", "containerd"),
        Break("RUNTIME_UNUSABLE", f"chmod 644 {RUNTIME}", f"chmod 755 {RUNTIME}"),
    ),
    "a kubelet that hangs": (
        Break("KUBELET_SILENT", HUNG.format("STOP"), HUNG.format("CONT")),
        Break("RUNTIME_UNUSABLE", f"mv {RUNTIME} /root/it", f"mv /root/it {RUNTIME}"),
        stop("ENGINE_STOPPED", "docker.socket", "docker"),
    ),
    "files of engines": (
        edit("DRIFTED", TOML, WITHOUT_RUNTIME, RESTART),
        edit("CONTAINERD_CONFIG_INVALID", TOML, f"echo 'x = ,' >> {TOML}"),
        edit("DRIFTED", JSON, OTHER_DEFAULT, RELOAD),
    ),
    "CUDA, NVML, the name": (
        Break("CUDA_UNAVAILABLE DRIFTED", of_lab("no-uvm"), of_lab("restore")),
        Break("NVML_UNAVAILABLE DRIVER_BROKEN", of_lab("no-nvml"), of_lab("restore")),
        Break("NODE_RENAMED", "hostname renamed", "hostname gpu-3"),
    ),
    "device files": (
        Break("NVML_UNAVAILABLE DRIVER_BROKEN", of_lab("no-nvidiactl"), of_lab("restore")),
        Break("CUDA_UNAVAILABLE DRIFTED", of_lab("no-uvm-file"), of_lab("restore")),
        stop("DRIFTED", "nvidia-persistenced"),
    ),
    "device files that cannot work": (
        Break("DEVICE_FILE_OUTDATED DRIFTED", of_lab("uvm-number"), of_lab("restore")),
        Break("DEVICE_FILE_BLOCKED", f"{NO_UVM} && mkdir {UVM}", f"rmdir {UVM} && {CREATE}"),
        Break("DEVICE_FILE_BLOCKED", f"{NO_UVM} && touch {UVM}", f"rm {UVM} && {CREATE}"),
    ),
    # The device plugin ignores both. The GPU of gpu-3 has none.
    "the kernel log": (
        Break("", of_lab("xid", "0", "31"), of_lab("restore")),
        Break("GPU_ERROR_LOGGED", of_lab("xid", "0", "109"), of_lab("restore")),
        Break("GPU_ERROR_LOGGED", of_lab("xid", "0", "79"), of_lab("restore")),
    ),
    "nvidia-smi": (
        hardware("NVML_UNAVAILABLE DRIVER_BROKEN", "smi-hang"),
        hardware("NVML_UNAVAILABLE DRIVER_BROKEN", "smi-garbage"),
        hardware("NVML_TROUBLE", "smi-exit", "14"),
    ),
    # The plugin cannot choose among the others on gpu-1: no pod gets them.
    "GPUs without a handle": (
        Break(
            "GPU_FAULTY GPU_UNHEALTHY POD_NOT_ADMITTED", of_lab("gpu-lost", "2"), of_lab("restore")
        ),
        hardware("GPU_FAULTY GPU_UNHEALTHY", "gpu-unknown-error"),
        hardware("GPU_FAULTY", "gpu-needs-reset"),
    ),
    "GPUs that are missing": (
        hardware("NVML_COUNT_DIFFERS POD_NOT_ADMITTED", "gpu-hidden", "1"),
        hardware("GPU_FAULTY GPU_UNHEALTHY", "gpu-lost-in-use"),
        hardware("NO_GPU", "lose-gpu"),
    ),
    "GPUs that others have": (
        hardware("REBOOT_NEEDED NVML_UNAVAILABLE", "library-mismatch"),
        Break(
            "GPU_PASSED_THROUGH GPU_UNHEALTHY",
            of_lab("vfio"),
            of_lab("restore"),
        ),
        hardware("NOUVEAU_LOADED NVML_UNAVAILABLE", "nouveau"),
    ),
    "infoROM, a part of NVML, an Xid storm": (
        hardware("", "inforom"),
        Break(
            "NVML_UNAVAILABLE DRIVER_BROKEN",
            f"mv {NVML} /root/nvml && head --bytes=100 /root/nvml > {NVML}",
            f"mv /root/nvml {NVML}",
        ),
        Break("GPU_UNRELIABLE", STORM, of_lab("restore")),
    ),
    # Without its own checkpoint of devices, a kubelet asks the plugin.
    "checkpoints of the kubelet": (
        edit("KUBELET_STOPPED", CPUS, f"echo x > {CPUS}", KUBELET),
        edit("", CHECKPOINT, f"echo x > {CHECKPOINT}", KUBELET),
        stop("ENGINE_STOPPED", "cri-docker"),
    ),
    "what nobody notices": (
        Break("DRIFTED", NO_CDI, "mv /root/nvidia.yaml /var/run/cdi/nvidia.yaml"),
        Break("DRIFTED", UNHOLD, HOLD),
        edit("", JSON, MARK),  # which Docker takes
    ),
}


def await_no_taint(laboratory, node):
    """The taint goes a moment after the condition. Until then, verify reports the node."""
    taints = ("get", "node", node, "--output=jsonpath={.spec.taints}")
    deadline = time.monotonic() + 60
    while "not-ready" in laboratory.kubectl(*taints):
        assert time.monotonic() < deadline, f"{node} still has the taint"


def renew_plugin(laboratory, node):
    """A device plugin does not take a GPU back by itself."""
    path = r"--output=jsonpath={.status.allocatable.nvidia\.com/gpu}"
    if laboratory.kubectl("get", "node", node, path) != str(laboratory.gpu_count[node]):
        selector = "--selector=app.kubernetes.io/name=nvidia-device-plugin"
        laboratory.kubectl(
            "delete",
            "pods",
            "--namespace=kube-system",
            selector,
            f"--field-selector=spec.nodeName={node}",
        )
        offers(laboratory, node, laboratory.gpu_count[node])


@pytest.mark.parametrize("group", GROUPS)
def test_broken_nodes(ready, verdicts, group):
    nodes = dict(zip(ready.addresses, GROUPS[group], strict=True))
    with ExitStack() as stack:
        for node, commands in nodes.items():
            stack.enter_context(broken(ready, node, commands))
        found = verdicts("-e", "verify_capacity_timeout=1")
    for node in nodes:
        ready.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=60s")
        await_no_taint(ready, node)
    for node in PLUGINS:
        renew_plugin(ready, node)
    expected = {node: set(commands.codes.split()) for node, commands in nodes.items()}
    # What the cluster says of a node without an engine was true before.
    if "ENGINE_STOPPED" not in expected["gpu-3"]:
        expected["gpu-3"].add(NO_PLUGIN)
    # Whether the pod or the node is given up first. systemd starts a kubelet that crashes again.
    silent = {"KUBELET_SILENT", "NODE_NOT_READY"}
    if group == "checkpoints of the kubelet":
        silent |= {"KUBELET_STOPPED", "DEVICE_PLUGIN_HANGS"}
    assert {node: codes - silent for node, codes in found.items()} == {
        node: codes - silent for node, codes in expected.items()
    }
    assert bool(found["gpu-1"] & silent) == bool(expected["gpu-1"] & silent)


# -------------------------------------------------------------------------------------------------
# Files that cannot be replaced

# chattr is not on the nodes. Source: ioctl_iflags(2)
FLAG = f"""python3 -c "import fcntl, struct
with open('{JSON}') as file: fcntl.ioctl(file, 0x40086602, struct.pack('q', {{}}))"
"""
OBSTACLES = {
    "gpu-1": (TOML, f"ln {TOML} {TOML}.link", f"rm {TOML}.link"),
    "gpu-2": (TOML, f"mount --bind {TOML} {TOML}", f"umount {TOML}"),
    "gpu-3": (JSON, FLAG.format("0x10"), FLAG.format("0")),
}
EVERYTHING = "find /etc /var/lib/metal-gpu -xdev -type f -exec sha256sum {} + | sort"


@contextmanager
def obstructed(laboratory: Any) -> Iterator[None]:
    """Let each node need an edit of a file that cannot be replaced."""
    edits = {
        "gpu-1": edit("", TOML, WITHOUT_RUNTIME, RESTART),
        "gpu-2": edit("", TOML, WITHOUT_RUNTIME, RESTART),
        "gpu-3": edit("", JSON, OTHER_DEFAULT, RELOAD),
    }
    with ExitStack() as stack:
        for node, commands in edits.items():
            stack.enter_context(broken(laboratory, node, commands))
            _path, obstruct, clear = OBSTACLES[node]
            stack.enter_context(broken(laboratory, node, Break("", obstruct, clear)))
        yield


def test_files_that_cannot_be_replaced(ready):
    """Said before anything is written: no copy and no half-written file is left."""
    with obstructed(ready):
        before = {node: ready.host(node).check_output(EVERYTHING) for node in OBSTACLES}
        run = ready.playbook(NODE, "--tags=runtime")
        after = {node: ready.host(node).check_output(EVERYTHING) for node in OBSTACLES}
    assert run.returncode != 0
    for node, (path, _obstruct, _clear) in OBSTACLES.items():
        (words,) = {line for line in run.output.splitlines() if line.startswith(f"fatal: [{node}]")}
        assert f"cannot change {path}" in words
    assert after == before


# -------------------------------------------------------------------------------------------------
# The inventory


def test_variables_and_a_way_to_become_root_that_do_not_work(ready, verdicts, tmp_path):
    def mistakes(group: Any) -> None:
        group["hosts"]["gpu-1"]["gpu_count"] = "four"
        group["hosts"]["gpu-2"]["gpu_cuont"] = 1
        group["hosts"]["gpu-3"]["ansible_become_method"] = "su"

    inventory = ready.inventory_with(tmp_path / "mistakes.yml", mistakes)
    found = verdicts("-e", "verify_smoke=false", "-e", "verify_drift=false", inventory=inventory)
    assert found == {
        "gpu-1": {"VARIABLE_INVALID"},
        "gpu-2": set(),
        "gpu-3": {"BECOME_REFUSED"},
    }
    (_command, output) = ready.printed[-1]
    assert "VARIABLE_UNKNOWN " in output
    assert "gpu_cuont" in output


# -------------------------------------------------------------------------------------------------
# Last, since what runs on the node starts anew


def test_node_that_restarts_while_it_is_verified(ready, verdicts):
    """Between its observation and its pod: the pod fails, and what was observed is not true."""

    restarted = []

    def restart(line: str) -> None:
        if restarted or "Wait until the nodes report their GPUs" not in line:
            return
        as_root = [] if os.geteuid() == 0 else ["sudo"]
        container = ready.facts["nodes"]["gpu-2"]["container"]
        subprocess.run([*as_root, "docker", "restart", "-t", "0", container], check=True)
        restarted.append(container)

    found = verdicts("--limit=gpu-2", "-e", "verify_drift=false", watch=restart)
    assert restarted
    assert found["gpu-2"] & {"NODE_RESTARTED", "NODE_UNREACHABLE"}
    ready.kubectl("wait", "--for=condition=Ready", "node/gpu-2", "--timeout=120s")
