# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stage 1: what we observe of this machine, beside what NVML, CUDA and the kernel say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.metal.gpu.plugins.module_utils.findings import FAILURE
from ansible_collections.metal.gpu.plugins.module_utils.probe import limited
from ansible_collections.metal.gpu.plugins.module_utils.probe.collect import collect
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Node as Source
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Request
from ansible_collections.metal.gpu.plugins.module_utils.probe.program_files import find_program
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    cdi,
    device_files,
    gpu_models,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components import planning
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import interpret
from metal_gpu import gpu_names
from metal_gpu.hosts import Host
from metal_gpu.nodes import Node
from metal_gpu.terminal import doctor_report
from metal_hardware.beliefs import Beliefs
from metal_hardware.nvml import Nvml

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
ERRORS = ROOT / "tests/lab/metal_lab/recorded/cuda_programs.yml"
# The first number of the compute capability by our name of the generation; with both numbers where
# two generations share the first one.
CAPABILITIES = {
    "Maxwell": ("5.",),
    "Pascal": ("6.",),
    "Volta": ("7.0", "7.2"),
    "Turing": ("7.5",),
    "Ampere": ("8.0", "8.6", "8.7"),
    "Ada": ("8.9",),
    "Hopper": ("9.0",),
    "Grace Hopper": ("9.0",),
    "Blackwell": ("10.0", "11.", "12."),
    "Blackwell Ultra": ("10.3",),
}
# Wrong uses of CUDA, and the error that we expect of the driver's library.
WRONG_USES = {
    "not-initialised": 3,
    "beyond": 101,
    "no-ptx": 200,  # NVIDIA's driver, in lupinemachines/lupine#440
    "bad-ptx": 218,
    "newer-ptx": 222,
    "newer-gpu": 218,
    "no-function": 500,
    "much-memory": 2,
    "no-memory": 700,
}
CAPTURES: Mapping[str, Sequence[str]] = {
    "nvidia-smi.txt": ("nvidia-smi",),
    "nvidia-smi-L.txt": ("nvidia-smi", "-L"),
    "nvidia-smi-q.txt": ("nvidia-smi", "-q"),
    "nvidia-smi-q-x.xml": ("nvidia-smi", "-q", "-x"),
    "topology.txt": ("nvidia-smi", "topo", "-m"),
    "devices.txt": ("sh", "-c", "ls -lR /dev/nvidia*"),
    "kernel-log.txt": ("sh", "-c", "dmesg | grep -iE 'nvidia|nvrm|xid|nouveau|nova|Linux v'"),
    "modules.txt": ("sh", "-c", "lsmod | grep -E 'nvidia|nouveau|nova'; modinfo nvidia"),
    "system.txt": ("sh", "-c", "uname -a; cat /etc/os-release; mount | grep -i nvidia"),
    "driver-folder.txt": (
        "sh", "-c", "find /proc/driver/nvidia -type f | sort | while read -r file; do "
        "echo \"== $file\"; head -c 20000 \"$file\"; done"),
    "pci.txt": (
        "sh", "-c", "for gpu in /sys/bus/pci/devices/*; do "
        "[ \"$(cat \"$gpu/vendor\")\" = 0x10de ] || continue; echo \"== $gpu\"; "
        "for name in device class subsystem_vendor subsystem_device current_link_speed "
        "current_link_width max_link_speed max_link_width numa_node resource; do "
        "echo \"$name: $(cat \"$gpu/$name\" 2>&1)\"; done; "
        "echo \"driver: $(readlink \"$gpu/driver\")\"; done"),
}  # fmt: skip


def observe() -> tuple[dict[str, Any], Node, float]:
    """Return the raw data, the node as the command sees it, and how many seconds it took."""
    started = time.monotonic()
    request = Request(
        tuple(planning.OBSERVED["packages"]), tuple(planning.OBSERVED["repositories"]), True
    )
    raw = json.loads(json.dumps(collect(Source(Path("/"), limited.run, find_program), request)))
    node = Node(Host("gpu-1", "192.0.2.1", variables={}), interpret(raw))
    return raw, node, time.monotonic() - started


def compare(beliefs: Beliefs, node: Node, seconds: float) -> None:
    """Add what our observation, the bus, NVML and CUDA say of the same GPUs."""
    observed: Any = node.observed
    devices = observed["nvml"]["devices"]
    reports = {one["pci_address"]: one for one in observed["health"]["gpus"]}
    area = "observation"
    beliefs.add(area, "one observation ends within 30 s", f"{seconds:.1f} s", holds=seconds < 30)
    beliefs.add(area, "nvidia-smi's answer is whole", observed["nvml"]["failure"],
                holds=observed["nvml"]["complete"])  # fmt: skip
    error = observed["health"]["error"]
    beliefs.add(area, "the report of nvidia-smi -q -x is read", error, holds=not error)
    on_bus = sorted(one["address"] for one in observed["pci"])
    beliefs.equal(area, "the bus and nvidia-smi have the same GPUs", on_bus,
                  sorted(one["pci_address"] for one in devices))  # fmt: skip
    row = doctor_report.row(node)
    codes = [one["code"] for one in row["findings"] if one["severity"] == FAILURE]
    beliefs.equal(area, "no finding says that a GPU or the driver fails", [], codes)
    with beliefs.asking("NVML", "libnvidia-ml.so.1 answers"):
        nvml = Nvml()
        system = nvml.system()
        beliefs.equal("NVML", "driver version", observed["nvml"]["driver_version"],
                      system["driver_version"])  # fmt: skip
        beliefs.equal("NVML", "CUDA version", observed["health"]["cuda_version"],
                      system["cuda_version"])  # fmt: skip
        beliefs.equal("NVML", "number of GPUs", len(devices), system["count"])
        for index in range(system["count"] or 0):
            _compare_gpu(beliefs, nvml.gpu(index), devices, reports)
    beliefs.equal("driver", "version of the loaded module", observed["driver"]["module_version"],
                  observed["nvml"]["driver_version"])  # fmt: skip
    beliefs.add("driver", "flavour of the loaded module is known", observed["driver"]["flavour"],
                holds=observed["driver"]["flavour"] in ("open", "proprietary"))  # fmt: skip
    files, majors = observed["device_files"], observed["device_majors"]
    beliefs.equal("driver", "device files whose major number is not that of /proc/devices", {},
                  device_files.outdated(files, majors))  # fmt: skip


def _compare_gpu(
    beliefs: Beliefs,
    said: Mapping[str, Any],
    devices: Sequence[Mapping[str, Any]],
    reports: Mapping[str, Mapping[str, Any]],
) -> None:
    address = said.get("pci_address", "")
    device = next((one for one in devices if one["pci_address"] == address), {})
    report = reports.get(address, {})
    area = f"NVML, GPU {said.get('index')}"
    for key, value in said.items():
        first, _, second = key.partition(".")
        if key in device:
            beliefs.equal(area, f"{key} (query)", device[key], value)
        if first in report:
            ours = report[first][second] if second else report[first]
            beliefs.equal(area, f"{key} (report)", ours, value)
    generation = gpu_models.generation(said.get("device_id", ""))
    beliefs.add(area, "its id is in a known block", generation.name,
                holds=generation.name in CAPABILITIES)  # fmt: skip
    names = (gpu_names.name(said.get("device_id", ""), None), said.get("name"))
    beliefs.add(area, "name of the table, name of NVML", names,
                holds=f"{names[0]}".split()[0] in f"{names[1]}")  # fmt: skip


def compute(beliefs: Beliefs, node: Node) -> dict[str, Any]:
    """Compute on each GPU, use CUDA wrongly, and compare its words with the recorded ones."""
    observed: Any = node.observed
    result = cuda("compute")
    if result["error"] == -1:
        beliefs.add("CUDA", "libcuda.so.1 is found", result["call"], holds=False)
        return {"compute": result}
    beliefs.equal("CUDA", "a kernel of ours computes", 0, result["error"])
    devices = {one["pci_address"]: one for one in observed["nvml"]["devices"]}
    for index, gpu in enumerate(result.get("gpus", ())):
        area = f"CUDA, GPU {index}"
        device = devices.get(gpu["pci_address"], {})
        beliefs.equal(area, "wrong elements of the sum", 0, gpu["wrong"])
        for key in ("uuid", "name"):
            beliefs.equal(area, f"{key} is that of nvidia-smi", device.get(key), gpu[key])
        on_bus = {one["address"]: one["device"] for one in observed["pci"]}
        name = gpu_models.generation(on_bus.get(gpu["pci_address"], "ffff")).name
        beliefs.add(area, f"compute capability of {name}", gpu["capability"],
                    holds=gpu["capability"].startswith(CAPABILITIES.get(name, ("?",))))  # fmt: skip
    for case, number in WRONG_USES.items():
        beliefs.equal("CUDA, wrong uses", case, number, cuda(case)["error"])
    hidden = cuda("init", CUDA_VISIBLE_DEVICES="-1")["error"]
    beliefs.equal("CUDA, wrong uses", "no visible device", 100, hidden)
    for path, number in (("/dev/nvidia-uvm", 999), ("/dev/nvidiactl", 100)):
        covered = cuda("init", cover=path)["error"] if Path(path).exists() else None
        beliefs.equal(
            "CUDA, wrong uses", f"{path} is no device", None if covered is None else number, covered
        )
    said = cuda("errors")
    for row in yaml.safe_load(ERRORS.read_text())["errors"]:
        words = said.get(str(row["number"]))
        if row["name"]:
            beliefs.equal("CUDA, words", f"{row['number']}", [row["name"], row["words"]], words)
    return {"compute": result, "errors": said}


def cuda(case: str, cover: str = "", **environment: str) -> dict[str, Any]:
    """Run a case of cuda.py; with a file in /dev covered, in a namespace of its own."""
    argv = [sys.executable, str(HERE / "cuda.py"), case]
    if cover:
        if not shutil.which("unshare"):
            return {"error": None}
        argv = ["unshare", "--mount", "sh", "-c", 'mount --bind /dev/null "$0" && exec "$@"',
                cover, *argv]  # fmt: skip
    done = subprocess.run(
        argv, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60,
        check=False)  # fmt: skip
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"error": None, "call": f"ended with {done.returncode}: {done.stderr[-300:]}"}
    return answer


def specification(beliefs: Beliefs, node: Node, ctk: Path, kind: str) -> Path | None:
    """Generate a CDI specification with the carried nvidia-ctk, and read it with our reader."""
    vendor, _, class_ = kind.partition("/")
    path = ctk.parent.parent / "cdi" / "hardware.yaml"
    path.parent.mkdir(exist_ok=True)
    done = subprocess.run(
        [ctk, "cdi", "generate", f"--vendor={vendor}", f"--class={class_}", f"--output={path}",
         f"--nvidia-cdi-hook-path={ctk.parent / 'nvidia-cdi-hook'}"],
        capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
    words = (done.stderr.splitlines() or ["no words"])[-1]
    beliefs.add("CDI", "nvidia-ctk generates", words, holds=done.returncode == 0)
    if done.returncode:
        return None
    document = yaml.safe_load(path.read_text())
    observed: Any = node.observed
    uuids = [one["uuid"] for one in observed["nvml"]["devices"]]
    devices = cdi.parse_devices(document)
    beliefs.equal("CDI", "kind", kind, cdi.parse_kind(document))
    beliefs.add("CDI", "each GPU has a device", devices, holds=len(devices) > len(uuids))
    beliefs.equal("CDI", "version of the driver in it", [observed["driver"]["module_version"]],
                  cdi.parse_drivers(document))  # fmt: skip
    nodes = set(re.findall(r"path: (/dev/\S+)", path.read_text()))
    missing = sorted(one for one in nodes if not Path(one).exists())
    beliefs.equal("CDI", "device files that it names and that are missing", [], missing)
    return path


def captures() -> dict[str, str]:
    """Return what programs and files of this machine say, by name."""
    found = {}
    for name, argv in CAPTURES.items():
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
            found[name] = done.stdout + (f"\n[stderr] {done.stderr}" if done.stderr else "")
        except (OSError, subprocess.TimeoutExpired) as error:
            found[name] = f"[{error}]"
    return found
