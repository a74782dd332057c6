# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which other drivers are known for a node, if DKMS cannot build the module of one? Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import gpu_models
from ansible_collections.metal.gpu.plugins.module_utils.read.pci import GpuRow
from ansible_collections.metal.gpu.plugins.module_utils.read.version import release
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import known, secure_boot
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.fit import (
    DISTRIBUTION,
    NVIDIA,
    Machine,
    Wish,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.source import (
    Choice,
    choose_source,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems


def machine(node: Node) -> Machine:
    """Return what the choice of a driver depends on."""
    gpus: dict[gpu_models.Generation, list[GpuRow]] = {}
    for gpu in node["pci"]:
        gpus.setdefault(gpu_models.generation(gpu["device"]), []).append(gpu)
    return Machine(
        systems.supported(node), node["kernel"]["release"], gpus, secure_boot.refuses_unsigned(node)
    )


def other_drivers(node: Node, version: str, kernel: str | None = None) -> str:
    """Return the variables for every other driver that is recorded for the node's GPUs, in words.

    `version` is that of the driver to replace, or a pattern for it. Each driver here is one that
    the choice gives this node as it is: with its GPUs, its kernel, and Secure Boot. What DKMS has
    failed to build here already is left out: for `kernel`, or else the running one.
    """
    found, tried = machine(node), _tried(node, kernel or str(node["kernel"]["release"]))
    ways = [*_of_nvidia(found, version, tried)]
    own = _of_archive(found, (version, *tried))
    if own:
        # A module that the distribution has built itself needs no build here.
        place = 0 if own.is_signed else len(ways)
        ways.insert(place, own.words)
    if ways:
        return "; or ".join(ways)
    unknown = "no other one is recorded for these GPUs and this system"
    return f"set nvidia_driver_version or nvidia_driver_branch to another driver ({unknown})"


def _tried(node: Node, kernel: str) -> list[str]:
    """Return the versions that DKMS could not build for a kernel.

    The log of an earlier failure stays after a build for the same kernel, and does not count then.
    """
    return [
        source.rpartition("/")[2]
        for source, build in node["driver"]["dkms"]["builds"].items()
        if build["log"] and kernel not in build["kernels"]
        if build["failed"] in (kernel, None)
    ]


class _Own(NamedTuple):
    """The driver of the distribution."""

    words: str
    is_signed: bool


def _of_nvidia(found: Machine, version: str, tried: Collection[str]) -> Iterator[str]:
    former = next(iter(release(version)), 0)
    branches = sorted(known.repository(found.system).seen, key=_preference(former))
    offers = (choose_source(found, Wish(NVIDIA, branch=one)) for one in branches)
    names = [
        one.version
        for one in offers
        if isinstance(one, Choice)
        and not fnmatchcase(one.version, version)
        and one.version not in tried
    ]
    if names:
        others = f" (or {', '.join(names[1:])})" if names[1:] else ""
        yield (
            f"set `nvidia_driver_source: nvidia` and `nvidia_driver_version: {names[0]}`{others}, "
            f"recorded for NVIDIA's repository for {found.system.name}"
        )


def _preference(former: int) -> Callable[[int], tuple[int, int, int]]:
    """Return the order of branches for a node on which a module of the branch `former` does not
    build: this branch, newer ones, and older ones last.

    Most builds fail because the kernel is newer than the driver. Among the newer branches, those
    that the choice itself prefers come first, and then the newest one.
    """
    preferred = known.DEFAULT_BRANCHES

    def place(number: int) -> tuple[int, int, int]:
        if number <= former:
            return (0 if number == former else 2), 0, -number
        rank = preferred.index(number) if number in preferred else len(preferred)
        return 1, rank, -number

    return place


def _of_archive(found: Machine, failed: Collection[str]) -> _Own | None:
    """Return the driver of the distribution, unless it is one that could not be built here.

    Ubuntu has built the module of its own already.
    """
    choice = choose_source(found, Wish(DISTRIBUTION))
    if not isinstance(choice, Choice):
        return None
    rows = [one for one in known.archives(found.system) if one.branch == choice.branch]
    is_signed = any(one.is_signed for one in rows)
    if not is_signed and any(_is_same(choice, one) for one in failed):
        return None
    return _Own(
        "set `nvidia_driver_source: distribution` and remove nvidia_driver_version, "
        f"nvidia_driver_branch and nvidia_driver_flavour, for driver {choice.driver} from the "
        f"archive of {found.system.name}",
        is_signed,
    )


def _is_same(choice: Choice, version: str) -> bool:
    return choice.version == version or choice.fits(version)
