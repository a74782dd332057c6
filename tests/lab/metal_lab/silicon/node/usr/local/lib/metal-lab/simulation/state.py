# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine, and what its kernel did since boot.

The machine outlives a reboot (machine.json), the kernel's memory does not (it is in /run).
Everything else that this package writes follows from these two.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Function = dict[str, Any]

# Real kernels give a free one to nvidia_uvm when it is loaded.
UVM_MAJOR = 510

MACHINE = "/usr/local/lib/metal-lab/machine.json"

PRE_TURING = ("maxwell", "pascal", "volta")  # no GSP: only the proprietary module drives them
LAST_BRANCH_FOR_PRE_TURING = 580
OPEN_ONLY = ("blackwell",)
MANAGEMENT_PORT = "SMDL=SW_MNG"  # in the vital product data (VPD) of an adapter
# Faults of one GPU, worst first, and what the driver's view calls its state (nvml/machine.c).
GPU_STATES = {
    "gpu-lost": "lost",
    "gpu-lost-in-use": "lost-in-use",
    "gpu-unknown-error": "unknown-error",
    "gpu-needs-reset": "needs-reset",
    "gpu-hidden": "hidden",
    "inforom": "inforom",
}


def _is_nvswitch(function: Function) -> bool:
    return (function["vendor"], function["class"]) == ("10de", "0680")


def _release() -> str:
    """The release of the node's kernel: a machine can have another one than the host.

    From the first boot on, the file in /run has it. A fault changes only what the next one starts.
    """
    running, machine = Path("/run/metal-lab/kernel-release"), Path(MACHINE)
    release = running.read_text().strip() if running.exists() else ""
    if not release and machine.exists():
        release = json.loads(machine.read_text()).get("kernel", "")
    return release or os.uname().release


@dataclass(frozen=True)
class Node:
    """The file system that the simulation writes to; tests plant a root of their own."""

    root: Path = Path("/")
    release: str = field(default_factory=_release)

    def path(self, absolute: str) -> Path:
        return self.root / absolute.lstrip("/")

    @property
    def state(self) -> Path:
        return self.path("/run/metal-lab")

    @property
    def modules(self) -> Path:
        return self.path(f"/lib/modules/{self.release}")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One at a time: faults come from outside while units load modules."""
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@dataclass
class Machine:
    """The hardware with its faults."""

    file: Path
    content: dict[str, Any]

    @classmethod
    def load(cls, node: Node) -> Machine:
        file = node.path(MACHINE)
        return cls(file, json.loads(file.read_text()))

    def save(self) -> None:
        self.file.write_text(json.dumps(self.content, indent=2) + "\n")

    @property
    def all_gpus(self) -> list[Function]:
        return [function for function in self.content["functions"] if "gpu" in function]

    @property
    def functions(self) -> list[Function]:
        """All functions on the bus, in bus order."""
        if self.has_fault("remove-all-gpus"):
            return [function for function in self.content["functions"] if "gpu" not in function]
        return [
            function
            for function in self.content["functions"]
            if not self.has_fault("lose-gpu", function["address"])
            and not self.has_fault("lose-nvswitch", function["address"])
        ]

    @property
    def gpus(self) -> list[Function]:
        return [function for function in self.functions if "gpu" in function]

    @property
    def nvswitches(self) -> list[Function]:
        """Of A100 and H100: bridges on the bus. A lost one is missing there."""
        return [one for one in self.functions if _is_nvswitch(one)]

    @property
    def has_all_nvswitches(self) -> bool:
        return self.nvswitches == [one for one in self.content["functions"] if _is_nvswitch(one)]

    @property
    def management_ports(self) -> list[Function]:
        """Of B200: ports of adapters. The NVSwitches are behind them, and not on the bus."""
        return [one for one in self.functions if MANAGEMENT_PORT in one.get("vpd", "")]

    @property
    def secure_boot(self) -> bool | None:
        """None means that the machine has no EFI."""
        return True if self.has_fault("secure-boot") else self.content["secure_boot"]

    def keys(self, state: str) -> list[str]:
        """Checksums of certificates that the firmware trusts ("enrolled"), or is asked to trust
        ("requested")."""
        found: list[str] = self.content.setdefault("keys", {}).setdefault(state, [])
        return found

    @property
    def has_nouveau(self) -> bool:
        """Whether the distribution's kernel comes with nouveau."""
        return self.content["nouveau"] or self.has_fault("nouveau")

    def faults(self, name: str) -> list[dict[str, Any]]:
        return [fault for fault in self.content["faults"] if fault["name"] == name]

    def has_fault(self, name: str, address: str | None = None) -> bool:
        return any(fault.get("address") == address for fault in self.faults(name))

    def add_fault(self, name: str, **details: Any) -> None:
        fault = {"name": name, **details}
        if fault not in self.content["faults"]:
            self.content["faults"].append(fault)

    def set_fault(self, name: str, address: str, **details: Any) -> None:
        """Add a fault of a GPU that it can have only once."""
        others = [one for one in self.content["faults"] if one != self.fault_of(name, address)]
        self.content["faults"] = [*others, {"name": name, "address": address, **details}]

    def fault_of(self, name: str, address: str) -> dict[str, Any]:
        """The fault with this name of a GPU, or nothing."""
        return next((one for one in self.faults(name) if one.get("address") == address), {})

    def gpu_state(self, address: str) -> str:
        """In the terms of the driver's view: ok, xid48, or a value of GPU_STATES."""
        for name, state in GPU_STATES.items():
            if self.has_fault(name, address):
                return state
        xids = [fault["xid"] for fault in self.faults("xid") if fault["address"] == address]
        return f"xid{xids[-1]}" if xids else "ok"

    def gpu_health(self, address: str) -> dict[str, int]:
        """What a GPU reports of itself, in the words of nvml/machine.h; the last fault counts."""
        found: dict[str, int] = {}
        for fault in self.faults("health"):
            if fault["address"] == address:
                found |= fault["values"]
        return found

    def is_off_bus(self, address: str) -> bool:
        return self.gpu_state(address) in ("lost", "lost-in-use")


@dataclass
class Driver:
    """An NVIDIA kernel module: on disk, or loaded."""

    version: str
    flavour: str  # open or proprietary

    def drives(self, gpu: dict[str, Any]) -> bool:
        if gpu["architecture"] in PRE_TURING:
            branch = int(self.version.split(".")[0])
            return self.flavour == "proprietary" and branch <= LAST_BRANCH_FOR_PRE_TURING
        return self.flavour == "open" or gpu["architecture"] not in OPEN_ONLY


@dataclass
class Kernel:
    """The memory of the running kernel."""

    file: Path
    modules: list[str] = field(default_factory=list)  # simulated ones, in the order of loading
    driver: Driver | None = None  # the loaded NVIDIA module
    parameters: dict[str, str] = field(default_factory=dict)  # that it was loaded with
    bound: dict[str, str] = field(default_factory=dict)  # address of a GPU -> driver
    minors: dict[str, int] = field(default_factory=dict)  # address -> /dev/nvidia<minor>
    # Addresses in persistence mode. A GPU that is not driven now keeps its entry, because the
    # running nvidia-persistenced sets the mode again when the GPU comes back.
    persistent: list[str] = field(default_factory=list)
    # Of GPUs in MIG mode, by address: instances are not stored in the GPU.
    instances: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    # Whether Fabric Manager has trained the GPUs since the module was loaded. It stays if it ends.
    fabric: bool = False
    evicted: list[str] = field(default_factory=list)  # modules that a fault removed
    uvm_major: int = UVM_MAJOR
    # Names in /dev that somebody creates now, with their numbers. /dev has the others.
    device_files: dict[str, tuple[int, int]] = field(default_factory=dict)
    missing_files: list[str] = field(default_factory=list)  # names in /dev that a fault removed
    log: list[str] = field(default_factory=list)  # lines that dmesg shows

    @classmethod
    def load(cls, node: Node) -> Kernel:
        file = node.state / "kernel.json"
        if not file.exists():
            return cls(file)
        content = json.loads(file.read_text())
        driver = content.pop("driver")
        return cls(file, driver=Driver(**driver) if driver else None, **content)

    def save(self) -> None:
        content = {
            **vars(self),
            "driver": vars(self.driver) if self.driver else None,
        }
        del content["file"], content["device_files"]
        self.file.write_text(json.dumps(content, indent=2) + "\n")

    def release_gpus(self, driver: str) -> None:
        """Release the driver's GPUs, as on unload."""
        for address in [address for address, name in self.bound.items() if name == driver]:
            self.forget(address)

    def forget(self, address: str) -> None:
        self.bound.pop(address, None)
        self.minors.pop(address, None)
        self.instances.pop(address, None)
