# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that MIG splits: their mode, their instances, and the numbers of the files of these.

Each instance has all of its GPU instance: one compute instance, number 0.

Source: tests/recorded/mig.yml of the project
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from .errors import FaultError, choose_gpu
from .state import Function, Kernel, Machine, Node

# The name in /proc/devices. Real kernels give a free number when the module is loaded.
CAPS, CAPS_MAJOR = "nvidia-caps", 508
# The driver has numbers for so many GPUs, GPU instances and compute instances, and two first ones.
_GPUS, _GPU_INSTANCES, _COMPUTE_INSTANCES = 32, 15, 8
_COMMON = ("config", "monitor")
_OF_COMPUTE = 0
_SLICES = 7
# The mode of these is stored in the GPU. That of newer ones goes with the driver.
_REMEMBERS = ("ampere",)
_NAMESPACE = uuid.UUID("5a2f8f0e-8f5c-5b8e-9a54-0d5f4b6f1c11")

Instance = dict[str, Any]  # gi, and profile: one of the GPU's


def is_capable(machine: Machine) -> bool:
    return any(gpu["gpu"]["mig"] for gpu in machine.gpus)


def is_on(machine: Machine, kernel: Kernel, address: str) -> bool:
    """Whether a GPU is in MIG mode."""
    return machine.has_fault("mig", address) or address in kernel.instances


# ---- the files of instances -------------------------------------------------------------------


def minors() -> dict[str, int]:
    """The minor numbers of all files below /dev/nvidia-caps, by what they give access to."""
    names = list(_COMMON)
    for gpu in range(_GPUS):
        for instance in range(_GPU_INSTANCES):
            names.append(f"gpu{gpu}/gi{instance}/access")
            parts = range(_COMPUTE_INSTANCES)
            names += [f"gpu{gpu}/gi{instance}/ci{part}/access" for part in parts]
    return {name: number for number, name in enumerate(names, start=1)}


def minors_text() -> str:
    """The file mig-minors: it lists instances that do not exist, too."""
    return "".join(f"{name} {number}\n" for name, number in minors().items())


# ---- the driver's view ------------------------------------------------------------------------


def lines(machine: Machine, kernel: Kernel) -> Iterator[str]:
    """The lines about profiles and instances, as nvml/machine.h has them."""
    split = [gpu for gpu in machine.gpus if gpu["address"] in kernel.minors]
    if any(gpu["gpu"]["mig"] for gpu in split):
        yield f"caps {CAPS_MAJOR}"
    numbers = minors() if kernel.instances else {}
    for gpu in split:
        for profile in gpu["gpu"].get("profiles", ()):
            shown = {key: value for key, value in profile.items() if key != "numbers"}
            yield _line("profile", gpu, shown)
        for index, one in enumerate(kernel.instances.get(gpu["address"], ())):
            place = f"gpu{kernel.minors[gpu['address']]}/gi{one['gi']}"
            values = {
                "index": index,
                "gi": one["gi"],
                "ci": _OF_COMPUTE,
                "uuid": instance_uuid(gpu, one["gi"]),
                "number": one["profile"]["number"],
                "gi_minor": numbers[f"{place}/access"],
                "ci_minor": numbers[f"{place}/ci{_OF_COMPUTE}/access"],
            }
            yield _line("instance", gpu, values)


def _line(word: str, gpu: Function, values: dict[str, Any]) -> str:
    pairs = {"gpu": gpu["gpu"]["uuid"], **values}
    return " ".join([word, *(f"{key}={value}" for key, value in pairs.items())])


def instance_uuid(gpu: Function, number: int) -> str:
    """The UUID follows from the GPU and the numbers of the instance."""
    identity = f"{gpu['gpu']['uuid']}/{number}/{_OF_COMPUTE}"
    return f"MIG-{uuid.uuid5(_NAMESPACE, identity)}"


# ---- changes ----------------------------------------------------------------------------------


def split(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU [PROFILE...]]: MIG is on, with these instances: 1g.5gb; without a profile, with none."""
    address = choose_gpu(machine, arguments)
    (gpu,) = (one for one in machine.all_gpus if one["address"] == address)
    if not gpu["gpu"].get("profiles"):
        raise FaultError(f"nothing is known about MIG on {gpu['gpu']['name']}")
    if address not in kernel.minors:
        raise FaultError("no driver is loaded for the GPU")
    instances = _instances(gpu, arguments[1:])
    if gpu["gpu"]["architecture"] in _REMEMBERS:
        machine.add_fault("mig", address=address)
    kernel.instances[address] = instances


def whole(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: MIG is off."""
    address = choose_gpu(machine, arguments)
    kernel.instances.pop(address, None)
    others = [one for one in machine.content["faults"] if one != machine.fault_of("mig", address)]
    machine.content["faults"] = others


def _instances(gpu: Function, names: list[str]) -> list[Instance]:
    """Instances of these profiles, in the order in which the driver lists them."""
    profiles = {one["name"]: one for one in gpu["gpu"]["profiles"]}
    if unknown := set(names) - set(profiles):
        raise FaultError(f"{', '.join(unknown)}: not one of {', '.join(profiles)}")
    if sum(profiles[name]["slices"] for name in names) > _SLICES:
        raise FaultError(f"a GPU has {_SLICES} slices")
    memory = max(one["memory_mib"] for one in profiles.values())
    if sum(profiles[name]["memory_mib"] for name in names) > memory:
        raise FaultError(f"a GPU has {memory} MiB for its parts")
    free = {name: list(one["numbers"]) for name, one in profiles.items()}
    if too_many := [name for name in profiles if names.count(name) > profiles[name]["most"]]:
        raise FaultError(f"{too_many[0]}: at most {profiles[too_many[0]]['most']}")
    found = [{"gi": free[name].pop(0), "profile": profiles[name]} for name in names]
    numbers = [one["gi"] for one in found]
    if len(set(numbers)) < len(numbers):
        raise FaultError("these parts do not fit together")
    return sorted(found, key=lambda one: one["gi"])
