# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What metal.gpu.verify says of a node, from what the node hands over to the findings."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    plan as plan_nvidia_driver,
)
from ansible_collections.metal.gpu.tests.unit.support import healthy
from ansible_collections.metal.gpu.tests.unit.support.healthy import Node

Change = Callable[[dict[str, Any]], object]
GONE = "GPU is lost.  Reboot the system to recover this GPU"
HANDLE = "Unable to determine the device handle for"
THIRD = "GPU2: 0000:75:00.0"
ADDRESS = "0000:75:00.0"
UUID = "GPU-00000002-0000-0000-0000-000000000002"


def rows(raw: dict[str, Any]) -> list[str]:
    return list(raw["outputs"]["nvidia_smi"]["stdout"].splitlines())


def answer(rc: int | None = 0, stderr: str = "", **texts: str) -> Change:
    """Have nvidia-smi answer otherwise: `below` its rows, `instead` of them, or of the third."""

    def change(raw: dict[str, Any]) -> None:
        output, lines = raw["outputs"]["nvidia_smi"], rows(raw)
        if "third" in texts:
            lines[2:3] = [texts["third"]] if texts["third"] else []
        if "cell" in texts:
            lines[2] = lines[2].replace(texts["cell"], texts["text"])
        lines = [texts["instead"]] if "instead" in texts else lines
        lines += [texts["below"]] if "below" in texts else []
        output |= {"rc": rc, "stdout": "".join(f"{line}\n" for line in lines), "stderr": stderr}

    return change


def listed(raw: dict[str, Any]) -> None:
    """Have nvidia-smi print no row, and list all but the third."""
    cells = [line.split(", ") for line in rows(raw)]
    lines = [f"GPU {cell[0]}: {cell[2]} (UUID: {cell[1]})" for cell in cells]
    lines[2] = f"{HANDLE} gpu {ADDRESS}: {GONE}"
    raw["outputs"]["nvidia_smi_list"] = {"rc": 0, "stdout": "\n".join(lines), "stderr": ""}
    answer(15, instead=f"{HANDLE} {THIRD}: {GONE}")(raw)


def output(name: str, old: str, new: str) -> Change:
    """Have a program print something else."""

    def change(raw: dict[str, Any]) -> None:
        found = raw["outputs"][name]
        assert old in found["stdout"]
        found["stdout"] = found["stdout"].replace(old, new)

    return change


def reported(address: str = "", /, **values: object) -> Change:
    """Have GPUs report otherwise: one of them, or all."""

    def change(raw: dict[str, Any]) -> None:
        for gpu in raw["values"]["health"]["report"]["gpus"]:
            if gpu["pci_address"] == address or not address:
                for name, value in values.items():
                    place = gpu["fabric"] if name in gpu["fabric"] else gpu
                    place[name] = value

    return change


def without_file(name: str) -> Change:
    def lose(raw: dict[str, Any]) -> None:
        files = raw["values"]["driver"]["device_files"]
        files[:] = [file for file in files if file["path"] != f"/dev/{name}"]

    return lose


def twice(raw: dict[str, Any]) -> None:
    raw["outputs"]["nvidia_smi"]["stdout"] += rows(raw)[0] + "\n"


@pytest.fixture(scope="module")
def eight() -> Node:
    return healthy.docker_node()


@pytest.mark.parametrize(
    ("change", "codes", "nvml"),
    [
        # --- rows, and something besides ---
        *(
            pytest.param(answer(rc), ["NVML_TROUBLE"], 8, id=f"rows and exit code {rc}")
            for rc in (1, 2, 8, 14, 15, 255)
        ),
        pytest.param(answer(None), ["NVML_TROUBLE"], 8, id="rows, and no end"),
        pytest.param(
            answer(14, below="WARNING: infoROM is corrupted at gpu 0000:75:00.0"),
            ["NVML_TROUBLE"], 8, id="infoROM",
        ),
        pytest.param(
            answer(stderr="WARNING: infoROM is corrupted at gpu 0000:75:00.0"),
            ["NVML_TROUBLE"], 8, id="infoROM, exit code 0, on standard error",
        ),
        pytest.param(answer(below="something new"), ["NVML_TROUBLE"], 8, id="an unknown line"),
        pytest.param(twice, ["NVML_CONTRADICTS"], 9, id="a row twice"),
        # --- cells ---
        *(
            pytest.param(
                answer(cell=cell, text=text), codes, 7, id=f"{text} in place of {cell}"
            )
            for text in ("[GPU requires drain and reset]", "[Reset Required]", "[Not Found]")
            for cell, codes in (
                ("NVIDIA H100 80GB HBM3", ["GPU_FAULTY"]),
                (UUID, ["GPU_FAULTY"]),
                ("81559", ["GPU_FAULTY"]),
                ("00000000:75:00.0", ["GPU_FAULTY"]),
                ("580.178.04", ["GPU_FAULTY"]),
            )
        ),
        # --- a row less ---
        pytest.param(answer(third=""), ["NVML_COUNT_DIFFERS"], 7, id="a row is missing"),
        pytest.param(
            answer(third=f"2, {UUID}, NVIDIA H100, 80GB, 81559, 00000000:75:00.0, Enabled, 580"),
            ["NVML_COUNT_DIFFERS", "NVML_TROUBLE"], 7, id="a comma in a name",
        ),
        pytest.param(
            answer(third=f"2, {UUID}, NVIDIA H10"), ["NVML_COUNT_DIFFERS", "NVML_TROUBLE"], 7,
            id="a cut row",
        ),
        # --- a handle that nobody gets ---
        *(
            pytest.param(
                answer(rc, third=f"{HANDLE} {gpu}: {error}"), ["GPU_FAULTY"], 7,
                id=f"{gpu}: {error}, {rc}",
            )
            for rc, error in (
                (0, "Unknown Error"),
                (15, GONE),
                (255, "Unknown Error"),
                (255, "A GPU reset must occur before this GPU can be used again."),
            )
            for gpu in (THIRD, "GPU2", "GPU 0000:75:00.0", "GPU0000:75:00.0")
        ),
        pytest.param(
            answer(255, third="", stderr=f"{HANDLE} {THIRD}: Unknown Error"), ["GPU_FAULTY"], 7,
            id="on standard error",
        ),
        pytest.param(listed, ["GPU_FAULTY"], 7, id="no row, and the others listed"),
        pytest.param(
            answer(15, instead=f"{HANDLE} {THIRD}: {GONE}"), ["NVML_COUNT_DIFFERS", "GPU_FAULTY"],
            0, id="no row, and no list",
        ),
        # --- no driver ---
        pytest.param(
            answer(9, instead="NVIDIA-SMI has failed because it couldn't communicate with the "
                   "NVIDIA driver."),
            ["NVML_UNAVAILABLE", "DRIVER_BROKEN"], 0, id="no driver",
        ),
        pytest.param(
            answer(12, instead="NVIDIA-SMI couldn't find libnvidia-ml.so library in your system."),
            ["NVML_UNAVAILABLE", "DRIVER_BROKEN"], 0, id="no library",
        ),
        # --- device files ---
        pytest.param(without_file("nvidia-uvm"), ["CUDA_UNAVAILABLE"], 8, id="no nvidia-uvm"),
        pytest.param(without_file("nvidia3"), ["CUDA_UNAVAILABLE"], 8, id="no nvidia3"),
        # --- NVSwitches: every GPU is listed, and none can compute ---
        pytest.param(
            output("fabric_units", "ActiveState=active", "ActiveState=failed"),
            ["FABRIC_MANAGER_STOPPED"], 8, id="Fabric Manager stopped, and no drift besides",
        ),
        pytest.param(
            output("packages", "fabricmanager\t580.178.04", "fabricmanager\t590.48.01"),
            ["FABRIC_MANAGER_VERSION"], 8, id="Fabric Manager of another version",
        ),
        pytest.param(
            reported(ADDRESS, state="In Progress", status="N/A"),
            ["FABRIC_NOT_READY"], 8, id="a GPU is not in the fabric",
        ),
    ],
)  # fmt: skip
def test_a_node_that_is_not_what_it_seems(
    eight: Node, change: Change, codes: list[str], nvml: int
) -> None:
    node = eight.copy()
    change(node.raw)
    verdict = node.judge(node.observed())
    assert [found["code"] for found in verdict["findings"]] == codes
    assert verdict["layers"]["nvml"] == nvml
    assert not verdict["ok"]


@pytest.fixture(scope="module")
def b200(eight: Node) -> Node:
    """The same node with NVLink 5: its NVSwitches are behind an adapter."""
    node = eight.copy()
    values = node.raw["values"]
    values["platform"]["nvswitches"] = []
    for gpu in values["platform"]["pci"]:
        gpu["device"] = "2901"
    values["fabric"] |= {
        "ports": ["0000:41:00.0"],
        "subnet_manager": True,
        "modules": ["mlx5_ib", "ib_umad"],
    }
    output("nvidia_smi", "H100 80GB HBM3", "B200")(node.raw)
    node.raw["outputs"]["packages"]["stdout"] += "".join(
        f"{name}\t2025.10.14-1\tinstalled\thold\tamd64\n"
        for name in ("nvlsm", "infiniband-diags", "pciutils")
    )
    node.raw["texts"]["/etc/modules-load.d/ib_umad.conf"] = "ib_umad\n"
    return node


def fabric_value(**values: object) -> Change:
    return lambda raw: raw["values"]["fabric"].update(values)


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        pytest.param(lambda raw: None, [], id="healthy"),
        pytest.param(
            reported(ADDRESS, state="In Progress", status="N/A"),
            ["FABRIC_NOT_READY"],
            id="a GPU is not in the fabric",
        ),
        pytest.param(
            reported(state="In Progress", status="N/A"),
            ["FABRIC_NOT_READY"],
            id="no GPU is in the fabric",
        ),
        pytest.param(
            lambda raw: raw["values"]["health"]["report"].update(gpus=[], error="no answer"),
            ["GPU_HEALTH_UNKNOWN"],
            id="no answer",
        ),
        pytest.param(
            output("fabric_units", "ActiveState=active", "ActiveState=failed"),
            ["FABRIC_MANAGER_STOPPED"],
            id="Fabric Manager stopped",
        ),
        pytest.param(
            fabric_value(subnet_manager=False), ["SUBNET_MANAGER_STOPPED"], id="nvlsm ended"
        ),
    ],
)
def test_a_node_with_nvlink_5(b200: Node, change: Change, codes: list[str]) -> None:
    """nvidia-smi lists all GPUs, and the node is ok only if all of them are in the fabric."""
    node = b200.copy()
    change(node.raw)
    verdict = node.judge(node.observed())
    assert [found["code"] for found in verdict["findings"]] == codes
    assert verdict["layers"]["nvml"] == 8
    assert verdict["ok"] is not bool(codes)


def test_a_gpu_that_is_lost_is_named_by_everything(eight: Node) -> None:
    node = eight.copy()
    listed(node.raw)
    (found,) = node.judge(node.observed())["findings"]
    assert found["message"] == f"gpu-1: GPU 2 ({ADDRESS}, {UUID}) reports: {GONE}"


def test_the_exit_code_and_the_line_are_quoted(eight: Node) -> None:
    node = eight.copy()
    answer(14, below="WARNING: infoROM is corrupted at gpu 0000:75:00.0")(node.raw)
    (found,) = node.judge(node.observed())["findings"]
    assert "(exit code 14, inforom_corrupted)" in found["message"]
    assert "WARNING: infoROM is corrupted at gpu 0000:75:00.0" in found["message"]


# What pods saw is compared with what is known, and unknown is not none.
@pytest.mark.parametrize(
    ("change", "codes"),
    [
        pytest.param(None, ["SMOKE_DIFFERS"], id="all are known"),
        pytest.param(
            answer(12, instead="NVIDIA-SMI couldn't find libnvidia-ml.so library in your system."),
            ["NVML_UNAVAILABLE", "DRIVER_BROKEN"], id="none is known",
        ),
        pytest.param(listed, ["GPU_FAULTY"], id="some are known"),
    ],
)  # fmt: skip
def test_strangers(eight: Node, change: Change | None, codes: list[str]) -> None:
    node = eight.copy()
    if change:
        change(node.raw)
    assert node.smoke
    stranger = "GPU-11111111-0000-0000-0000-000000000000"
    node.smoke["uuids"][0] = node.smoke["results"][0]["uuid"] = stranger
    assert node.codes() == codes


# --- the driver of a node with a broken GPU ---------------------------------------------------

DRIVER = {"host": "gpu-1", "state": "present", **healthy.DRIVER_DESIRED}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(answer(15, instead=f"{HANDLE} {THIRD}: {GONE}"), id="lost, no row"),
        pytest.param(
            answer(255, instead=f"{HANDLE} {THIRD}: Unknown Error"), id="unknown error, no row"
        ),
        pytest.param(
            answer(255, third=f"{HANDLE} {THIRD}: A GPU reset must occur before this GPU can be "
                   "used again."),
            id="reset, the others have rows",
        ),
        pytest.param(listed, id="the others are listed"),
        pytest.param(answer(14), id="infoROM"),
        pytest.param(answer(None), id="hangs after its rows"),
        pytest.param(answer(below="something new"), id="an unknown line"),
    ],
)  # fmt: skip
def test_a_broken_gpu_is_no_broken_driver(eight: Node, change: Change) -> None:
    node = eight.copy()
    change(node.raw)
    plan = plan_nvidia_driver.plan(node.observed(), DRIVER)
    assert (plan["steps"], plan["refusals"], plan["notices"]) == ([], [], [])
    (kept,) = plan_nvidia_driver.plan(node.observed(), {**DRIVER, "version": "590.1"})["notices"]
    assert kept["code"] == "DRIVER_KEPT"
    assert "580.178.04" in kept["message"]


def test_a_driver_that_shows_no_gpu_is_broken(eight: Node) -> None:
    node = eight.copy()
    answer(18, instead="Failed to initialize NVML: Driver/library version mismatch")(node.raw)
    (refused,) = plan_nvidia_driver.plan(node.observed(), DRIVER)["refusals"]
    assert refused["code"] == "DRIVER_BROKEN"


# --- drift ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two() -> Node:
    return healthy.containerd_node()


def edit(path: str, pattern: str, replacement: str) -> Change:
    """Change a file, as another tool does."""

    def change(raw: dict[str, Any]) -> None:
        raw["texts"][path], count = re.subn(pattern, replacement, raw["texts"][path])
        assert count

    return change


def unit(name: str, **states: str) -> Change:
    """Change what systemd says of a unit."""

    def change(raw: dict[str, Any]) -> None:
        raw["units"][name].update(states)

    return change


def no_runtime(raw: dict[str, Any]) -> None:
    """Have containerd run without the runtime nvidia."""
    dump = raw["outputs"]["containerd_dump"]
    dump["stdout"] = dump["stdout"].replace("runtimes.nvidia", "runtimes.other")


def garbage(raw: dict[str, Any]) -> None:
    raw["texts"]["/etc/containerd/config.toml"] = "version = \n"
    raw["outputs"]["containerd_dump"] = {"rc": 1, "stdout": "", "stderr": "containerd: bad\n"}


@pytest.mark.parametrize(
    ("change", "codes", "words"),
    [
        pytest.param(
            no_runtime, ["DRIFTED"],
            "container_toolkit has drifted; steps to correct it: Register the NVIDIA runtime "
            "(containerd has no runtime nvidia)", id="the runtime is taken out of config.toml",
        ),
        pytest.param(
            garbage, ["CONTAINERD_CONFIG_INVALID"], "config.toml, line 1", id="garbage in it"
        ),
        pytest.param(
            lambda raw: raw["texts"].pop("/var/run/cdi/nvidia.yaml"), ["DRIFTED"],
            "container_toolkit has drifted; steps to correct it: Generate the CDI specification "
            "(no CDI specification has nvidia.com/gpu=all)",
            id="nvidia.yaml is gone",
        ),
        pytest.param(
            unit("nvidia-persistenced.service", ActiveState="inactive"), ["DRIFTED"],
            "driver has drifted; steps to correct it: Start the persistence daemon",
            id="persistenced is stopped",
        ),
        pytest.param(
            unit("nvidia-persistenced.service", UnitFileState="masked", ActiveState="inactive"),
            ["DRIFTED"], "driver has drifted; steps to correct it: ", id="persistenced is masked",
        ),
        pytest.param(
            edit("/var/lib/kubelet/config.yaml", "CPUManager: true", "DevicePlugins: true"),
            ["DRIFTED"], "kubelet has drifted; steps to correct it: Remove the DevicePlugins gate",
            id="a gate in the kubelet's file",
        ),
        pytest.param(
            unit("kubelet.service", ActiveState="failed", Result="signal"), ["KUBELET_STOPPED"],
            "its unit is failed (running, signal)", id="the kubelet is killed",
        ),
        pytest.param(
            unit("containerd.service", ActiveState="inactive"), ["ENGINE_STOPPED"],
            "containerd.service is not running", id="containerd is stopped",
        ),
        pytest.param(
            lambda raw: raw["texts"].pop("/sys/module/nvidia_uvm/initstate"),
            ["CUDA_UNAVAILABLE", "DRIFTED"], "the kernel module nvidia_uvm is not loaded",
            id="nvidia_uvm is unloaded",
        ),
    ],
)  # fmt: skip
def test_drift(two: Node, change: Change, codes: list[str], words: str) -> None:
    node = two.copy()
    change(node.raw)
    verdict = node.judge(node.observed())
    assert [found["code"] for found in verdict["findings"]] == codes
    assert words in verdict["findings"][0]["message"]


def kubespray(raw: dict[str, Any]) -> None:
    """Have containerd where Kubespray installs it, with its file, which imports nothing."""
    raw["exists"]["tool_Kubespray"] = True
    raw["programs"]["containerd"] = "/usr/local/bin/containerd"
    for path, text in raw["texts"].items():  # the file, and its history
        raw["texts"][path] = text.replace("imports = ", "# imports = ")


def docker_beside(raw: dict[str, Any]) -> None:
    raw["programs"]["dockerd"] = "/usr/bin/dockerd"
    raw["outputs"]["dockerd"] = {"rc": 0, "stdout": "Docker version 29.8.1\n", "stderr": ""}
    raw["units"]["docker.service"] = dict(raw["units"]["containerd.service"])


def deepops(raw: dict[str, Any]) -> None:
    """Have Kubespray's node with the toolkit of the GPU Operator: DeepOps installs both."""
    kubespray(raw)
    operator(raw)


def operator(raw: dict[str, Any]) -> None:
    """Have the GPU Operator's toolkit register its runtime in a file that containerd imports."""
    raw["exists"]["tool_the GPU Operator"] = True
    dump = raw["outputs"]["containerd_dump"]
    dump["stdout"] = dump["stdout"].replace(
        "/usr/bin/nvidia-container-runtime", "/usr/local/nvidia/toolkit/nvidia-container-runtime"
    )


def cloud(name: str) -> Change:
    return lambda raw: raw["exists"].update({f"tool_{name}": True})


@pytest.mark.parametrize(
    ("change", "codes", "words"),
    [
        pytest.param(lambda raw: None, [], "", id="kubeadm writes no file of an engine"),
        pytest.param(
            kubespray, ["KUBESPRAY_OVERWRITES"],
            "Kubespray writes /etc/containerd/config.toml anew", id="whose file it is",
        ),
        pytest.param(
            docker_beside, ["ENGINE_BESIDE"],
            "Docker runs beside containerd, which the kubelet uses",
            id="which engine is the kubelet's",
        ),
    ],
)  # fmt: skip
def test_who_owns_what_is_in_the_verdict(
    two: Node, change: Change, codes: list[str], words: str
) -> None:
    """It is no failure. The node is one of kubeadm."""
    node = two.copy()
    change(node.raw)
    observed = node.observed()
    verdict = node.judge(observed)
    assert "kubeadm" in observed["tools"]
    assert ([found["code"] for found in verdict["findings"]], verdict["ok"]) == (codes, True)
    assert words in "".join(found["message"] for found in verdict["findings"])


@pytest.mark.parametrize(
    ("change", "codes", "words"),
    [
        pytest.param(
            operator, ["OPERATOR_TOOLKIT"],
            "the runtime nvidia of containerd runs"
            " /usr/local/nvidia/toolkit/nvidia-container-runtime, which the GPU Operator installs",
            id="the GPU Operator",
        ),
        pytest.param(
            deepops, ["OPERATOR_TOOLKIT", "KUBESPRAY_OVERWRITES"],
            "which the GPU Operator installs", id="DeepOps",
        ),
        pytest.param(
            cloud("AKS"), ["CLOUD_IMAGE"],
            "an image of AKS, found by /opt/azure/containers/provision.sh", id="AKS",
        ),
        pytest.param(
            cloud("EKS"), ["CLOUD_IMAGE"], "an image of EKS, found by /etc/eks", id="EKS"
        ),
    ],
)  # fmt: skip
def test_other_owner_of_the_runtime_fails_the_node(
    two: Node, change: Change, codes: list[str], words: str
) -> None:
    node = two.copy()
    change(node.raw)
    verdict = node.judge(node.observed())
    assert ([found["code"] for found in verdict["findings"]], verdict["ok"]) == (codes, False)
    assert words in "".join(one["message"] for one in verdict["findings"])


def test_variables_that_lead_past_the_guard(eight: Node) -> None:
    """Docker's nodes need the guard."""
    node = eight.copy()
    config = "/etc/nvidia-container-runtime/config.toml"
    assert node.codes() == []
    line = 'swarm-resource = "DOCKER_RESOURCE_GPU"\n'
    node.raw["texts"][config] = line + node.raw["texts"].get(config, "")
    (found,) = node.judge(node.observed())["findings"]
    assert found["code"] == "SWARM_RESOURCE_SET"
    assert f"{config} has swarm-resource with DOCKER_RESOURCE_GPU" in found["message"]


def test_drift_of_docker(eight: Node) -> None:
    """Another tool gives Docker its former default runtime back, without which no pod has a GPU."""
    node = eight.copy()
    info = node.raw["outputs"]["docker_info"]
    info["stdout"] = info["stdout"].replace(
        '"DefaultRuntime": "nvidia"', '"DefaultRuntime": "runc"'
    )
    edit("/etc/docker/daemon.json", '"default-runtime": "nvidia"', '"default-runtime": "runc"')(
        node.raw
    )
    (found,) = node.judge(node.observed())["findings"]
    assert found["code"] == "DRIFTED"
    assert "container_toolkit has drifted; steps to correct it: " in found["message"]
    assert "its default runtime is runc" in found["message"]
