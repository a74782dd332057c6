# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which branches and kernel modules drive all GPUs of a machine, wherever they come from? Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.read import gpu_models
from ansible_collections.metal.gpu.plugins.module_utils.read.gpu_models import Generation, branch
from ansible_collections.metal.gpu.plugins.module_utils.read.pci import GpuRow
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import known
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import System

Wished = Literal["auto", "nvidia", "distribution", "runfile", "present"]
AUTO: Wished = "auto"
NVIDIA: Wished = "nvidia"
DISTRIBUTION: Wished = "distribution"
RUNFILE: Wished = "runfile"
PRESENT: Wished = "present"


class Machine(NamedTuple):
    """What the choice depends on."""

    system: System
    kernel: str | None  # the release of the running one
    gpus: Mapping[Generation, Sequence[GpuRow]]
    has_secure_boot: bool


class Wish(NamedTuple):
    """What the variables ask for; empty texts and 0 ask for nothing."""

    source: Wished = AUTO
    version: str = ""
    branch: int = 0
    flavour: str = "auto"
    mirror: str = ""  # what to call the user's own repository; empty for NVIDIA's

    @property
    def number(self) -> int:
        """Return the branch that is asked for, 0 for any."""
        return branch(self.version) if self.version else self.branch

    @property
    def driver(self) -> str:
        """Return what is asked for, in words."""
        return self.version or (f"of branch {self.branch}" if self.branch else "")


class Reason(NamedTuple):
    """Why there is no choice: the code of a finding, and its evidence."""

    code: str
    evidence: Mapping[str, object]


def fits(machine: Machine, number: int) -> bool:
    return all(gpu_models.supports(one, str(number)) for one in machine.gpus)


def flavour(machine: Machine, wish: Wish, number: int, available: Sequence[str]) -> str | None:
    """Return the kernel module that drives every GPU, in the order of those that are available."""
    allowed = available if wish.flavour == "auto" else (wish.flavour,)
    return next(
        (
            one
            for one in allowed
            if one in known.flavours(number)
            and one in available
            and all(one in generation.flavours for generation in machine.gpus)
        ),
        None,
    )


def unfit_gpus(machine: Machine, wish: Wish) -> Iterator[Reason]:
    """Yield what is wrong with the GPUs, whatever the source."""
    for generation, alike in machine.gpus.items():
        evidence = {
            "addresses": _addresses(alike),
            "generation": generation.name,
            "devices": ", ".join(dict.fromkeys(gpu["device"] for gpu in alike)),
        }
        if generation.name == gpu_models.GRACE_HOPPER.name:
            words = f"{generation.name} GPU at {evidence['addresses']}"
            yield Reason("ARM64_UNSUPPORTED", {"evidence": words})
        elif wish.number and not gpu_models.supports(generation, str(wish.number)):
            expected = gpu_models.branches(generation)
            more = {"version": wish.driver, "expected": expected}
            yield Reason("GPU_UNSUPPORTED_BY_DRIVER", {**evidence, **more})
    first = max((one.first_branch or 0 for one in machine.gpus), default=0)
    last = min((one.last_branch for one in machine.gpus if one.last_branch), default=first)
    if not wish.number and last < first:
        yield Reason("GPUS_INCOMPATIBLE", {"evidence": needs(machine)})


def unfit_flavours(machine: Machine, wish: Wish) -> Iterator[Reason]:
    """Yield why no kernel module drives every GPU, whatever the source."""
    every = (gpu_models.OPEN, gpu_models.PROPRIETARY)
    modules = known.flavours(wish.number) if wish.number else every
    allowed = modules if wish.flavour == "auto" else (wish.flavour,)
    if any(
        all(one in generation.flavours for generation in machine.gpus)
        for one in allowed
        if one in modules
    ):
        return
    evidence = [
        f"{generation.name} needs {' or '.join(generation.flavours)} ({_addresses(alike)})"
        for generation, alike in machine.gpus.items()
    ]
    if wish.number and len(modules) == 1:
        evidence.append(f"branch {wish.number} has only {modules[0]}")
    yield Reason("FLAVOUR_UNSUPPORTED", {"flavour": wish.flavour, "evidence": "; ".join(evidence)})


def newest(machine: Machine) -> int:
    """Return the branch for every GPU, wherever it comes from: the default one, or the last one."""
    if gpu_models.NEWER in machine.gpus:
        return max(known.mirrored())
    fitting = [one for one in known.DEFAULT_BRANCHES if fits(machine, one)]
    last = [one.last_branch for one in machine.gpus if one.last_branch is not None]
    return next(iter(fitting), min(last, default=known.DEFAULT_BRANCHES[-1]))


def needs(machine: Machine) -> str:
    """Return which branches the GPUs need; empty if every branch will do."""
    return "; ".join(
        f"{generation.name} ({_addresses(alike)}) needs {gpu_models.branches(generation)}"
        for generation, alike in machine.gpus.items()
        if generation.first_branch or generation.last_branch
    )


def names(machine: Machine) -> str:
    return " and ".join(generation.name for generation in machine.gpus)


def _addresses(gpus: Sequence[GpuRow]) -> str:
    return ", ".join(gpu["address"] for gpu in gpus)
