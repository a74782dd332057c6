# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Why does the driver not serve a GPU, or no GPU at all, and what helps?

Each observed fact that explains it is a cause. The kernel log comes first: the driver says there
why it refused a GPU. A GPU is to be replaced only if it fell off the bus.

Source: tests/recorded/driver_words.yml
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.read import (
    driver_words,
    gpu_models,
    pci,
    xids,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.kernel_events import LOST
from ansible_collections.metal.gpu.plugins.module_utils.verdict.kernel_log import (
    describe_remedy,
    logged_actions,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.module_utils.read.pci import GpuRow

_OFF_THE_BUS = (
    "drain the node and reboot it, because a GPU fell off the bus; replace a GPU that falls off "
    "again"
)
_UNEXPLAINED = (
    "read what `dmesg` has about its address; drain the node, and switch it off and on again"
)
_FITTING = (
    "remove the driver, and run again: without nvidia_driver_version, nvidia_driver_branch and "
    "nvidia_driver_flavour, the role chooses one that fits"
)
_APART = "move GPUs that need different drivers to different nodes: these ones cannot share a node"
_UNKNOWN_MODEL = (
    "install a newer driver, because the model can be newer than this one; if that does not help, "
    "the GPU is a part of one (vGPU), which needs the guest driver of the hypervisor's vGPU "
    "release, or it is in confidential computing mode: ask who runs the machine; if equal GPUs "
    "beside it work, have it checked"
)
# Each call of nvidia-smi would hang, too, and would stay.
HANGING = (
    "do not start nvidia-smi again: each call hangs and stays; list the processes that hang with "
    "`ps -eo pid,stat,wchan:30,args | awk '$2 ~ /^D/'`, read `dmesg`, then drain the node and "
    "reboot it"
)
_NO_CAUSE = "read `dmesg | grep -iE 'nvrm|nvidia|module'` on the node"


class Cause(NamedTuple):
    """Something observed that explains why a GPU is not served, and what to do."""

    words: str  # empty: another part of the message has them
    remedy: str


def of_gpus(node: Node, addresses: Collection[str]) -> list[Cause]:
    """Return why the driver does not serve these GPUs. GPUs of one cause are one row."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for gpu in node["pci"]:
        if gpu["address"] in addresses:
            cause = _of_gpu(node, gpu) or Cause("", _UNEXPLAINED)
            grouped.setdefault((cause.words, cause.remedy), []).append(gpu["address"])
    return [
        Cause(f"{', '.join(names)}: {words}" if words else "", remedy)
        for (words, remedy), names in grouped.items()
    ]


def of_driver(node: Node) -> list[Cause]:
    """Return why the driver does not answer at all."""
    failure = node["nvml"]["failure"]
    if failure and failure["code"] == "timeout":
        return [Cause("", HANGING)]
    found = [*_of_versions(node), *_of_build(node), *_of_secure_boot(node)]
    # What the driver says about GPUs can follow from these. Who has a GPU does not.
    names = [
        gpu["address"]
        for gpu in node["pci"]
        if not pci.is_reserved(gpu) and (pci.is_held(gpu) or not found) and _of_gpu(node, gpu)
    ]
    is_told = bool(found)
    found += of_gpus(node, names) if names else []
    for said in node["kernel_log"]["words"].get("", ()) if not is_told else ():
        row = driver_words.of_kind(said["kind"])
        found.append(Cause(f"the kernel logged: {said['line']}", "" if names else row.remedy))
    return found


def fell_off(node: Node, addresses: Collection[str]) -> bool:
    """Whether the driver logged that one of these GPUs fell off the bus."""
    return any(
        one["address"] in addresses and (one["source"] == LOST or one["number"] == xids.OFF_THE_BUS)
        for one in node["kernel_log"]["events"]
    )


def texts(causes: Iterable[Cause]) -> str:
    """Return what is observed, as the end of a message."""
    words = [one.words for one in causes if one.words]
    return f"; {'; '.join(words)}" if words else ""


def remedies(causes: Iterable[Cause], otherwise: str = _NO_CAUSE) -> str:
    """Return what to do, each remedy once."""
    return "; ".join(dict.fromkeys(filter(None, (one.remedy for one in causes)))) or otherwise


def block_remedy(node: Node, modules: Iterable[str]) -> str:
    """Return how an admin blocks modules of the kernel."""
    lines = "".join(f"blacklist {name}\\n" for name in modules)
    return (
        f"run `printf '{lines}' > /etc/modprobe.d/blacklist-gpu.conf` on the node, rebuild the "
        f"initial ramdisk ({_rebuild(node)}), and reboot"
    )


def _rebuild(node: Node) -> str:
    commands = {
        "update-initramfs": "`update-initramfs -u -k all`",
        "dracut": "`dracut --regenerate-all --force`",
    }
    program = (node["driver"]["initramfs_program"] or "").rpartition("/")[2]
    return commands.get(program) or " or ".join(commands.values())


def _of_gpu(node: Node, gpu: GpuRow) -> Cause | None:
    """Return the first cause for a GPU; None if nothing observed explains it."""
    address, log = gpu["address"], node["kernel_log"]
    if pci.is_held(gpu):
        module = pci.rival(gpu)
        way = block_remedy(node, [module]) if module else driver_words.of_kind("bound").remedy
        is_logged = any(one["kind"] == driver_words.BOUND for one in log["words"].get(address, ()))
        return Cause("" if is_logged else f"{gpu['driver']} of the kernel has it", way)
    if fell_off(node, [address]):
        return Cause("", _OFF_THE_BUS)
    said = [driver_words.of_kind(one["kind"]) for one in log["words"].get(address, ())]
    telling = [row for row in said if not row.is_generic]
    unfit = _unfit(node, gpu)
    if unfit:
        return Cause(unfit, _fitting(node))
    if telling:
        is_strange = telling[0].kind == driver_words.RELEASE
        return Cause("", _UNKNOWN_MODEL if is_strange else telling[0].remedy)
    if actions := logged_actions(node, address):
        return Cause("", describe_remedy(node, address, actions))
    return Cause("", said[0].remedy) if said else None


def _unfit(node: Node, gpu: GpuRow) -> str | None:
    """Return why the driver that is there does not fit a GPU. A virtual GPU has drivers of its own.

    Nothing but its words shows the flavour of a driver that is not loaded.
    """
    driver = node["driver"]
    version = driver["module_version"] or driver["disk_version"]
    said = [one["kind"] for one in node["kernel_log"]["words"].get(gpu["address"], ())]
    flavour = gpu_models.OPEN if driver_words.OPEN in said else driver["flavour"]
    if version is None:
        return None
    return gpu_models.why_unfit(gpu_models.generation(gpu["device"]), version, flavour)


def _fitting(node: Node) -> str:
    found = [gpu_models.generation(gpu["device"]) for gpu in node["pci"]]
    flavours = set.intersection(*(set(one.flavours) for one in found))
    first = max(one.first_branch or 0 for one in found)
    last = min((one.last_branch for one in found if one.last_branch), default=first)
    return _FITTING if flavours and first <= last else _APART


def _of_versions(node: Node) -> Iterator[Cause]:
    """Yield that module and libraries have different versions, and what a reboot would load."""
    driver, failure = node["driver"], node["nvml"]["failure"]
    loaded, installed = driver["module_version"], driver["disk_version"]
    if loaded and installed and loaded != installed:
        steps = []
        if node["package_manager"]["unfinished"]:
            steps.append("finish the installation of its packages with `dpkg --configure -a`")
        newer = driver["next_kernel"]
        if newer and not newer["module"]:
            steps.append(
                f"build the module for kernel {newer['release']}, which boots next and has none: "
                f"`dkms install {_source(node)} -k {newer['release']}`"
            )
        steps.append(
            f"rebuild the initial ramdisk, which can load the former one: {_rebuild(node)}"
        )
        way = ", then ".join(steps)
        yield Cause(
            f"module {loaded} is loaded, and {installed} is installed",
            f"{way}; only then drain the node and reboot it",
        )
    elif failure and failure["code"] == "library_mismatch" and loaded:
        yield Cause(
            f"module {loaded} is loaded, and the libraries have another version",
            "bring all packages of the driver to one version; a reboot alone changes nothing, "
            "because the module on the disk has the version of the loaded one",
        )


def _source(node: Node) -> str:
    return next(iter(node["driver"]["dkms"]["sources"]), "MODULE/VERSION")


def _of_build(node: Node) -> Iterator[Cause]:
    dkms = node["driver"]["dkms"]
    if dkms["built"] is False and (way := build_remedy(node, dkms["error"])):
        yield Cause("", way)


def build_remedy(node: Node, error: str | None) -> str | None:
    """Return what helps against the failed build of a module; None if its words are unknown."""
    row = driver_words.find_build(error or "")
    if row is None:
        return None
    if row.kind == "compiler" and (compiler := node["kernel"]["compiler"]):
        return (
            f"install {compiler}, which built the kernel, then run `dkms autoinstall` on the node"
        )
    return row.remedy


def _of_secure_boot(node: Node) -> Iterator[Cause]:
    """Yield that the kernel may have refused the module, which is there and not loaded."""
    driver = node["driver"]
    if not node["secure_boot"] or "nvidia" in node["kernel"]["modules"]:
        return
    if not driver["disk_version"]:
        return
    said = [
        one["line"]
        for one in node["kernel_log"]["words"].get("", ())
        if one["kind"] == driver_words.SIGNATURE
    ]
    key = driver["signing"]
    words = "Secure Boot is on, and the module is not loaded"
    if said:
        words += f" (the kernel logged: {said[0]})"
    way = driver_words.of_kind(driver_words.SIGNATURE).remedy
    if key and key["state"] == "enrolled":
        words += ", although the key of DKMS is enrolled"
        source = _source(node)
        way = (
            "compare `modinfo -F signer nvidia` with `keyctl list %:.machine` and `keyctl list "
            "%:.platform`: another key has signed the module, or the boot loader does not start "
            "through shim and the kernel gets no enrolled key; build the module again (`dkms "
            f"remove {source} -k $(uname -r)`, then `dkms install {source} -k $(uname -r)`), boot "
            "through shim, or turn Secure Boot off"
        )
    yield Cause(words, way)
