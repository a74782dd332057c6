# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Do CUDA programs compute on every GPU, and do the GPUs exchange data?

A program that fails says little about the GPU by itself: the image may not fit, or the fabric may
not be ready. What another finding about the node already explains is not reported twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import quote
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_output import LIST
from ansible_collections.metal.gpu.plugins.module_utils.findings import NOTICE, finding, is_sound
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    cuda_errors,
    cuda_images,
    gpu_models,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict import cuda_causes
from ansible_collections.metal.gpu.plugins.module_utils.verdict.fabric import PARTITIONS, is_needed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import (
        Exchange,
        Result,
        SmokeRow,
    )

# Which findings about the node explain an error, by its number.
_EXPLAINED_BY = {
    802: (
        "FABRIC_MANAGER_MISSING",
        "FABRIC_MANAGER_STOPPED",
        "FABRIC_MANAGER_VERSION",
        "FABRIC_NOT_READY",
        "SUBNET_MANAGER_STOPPED",
    ),
    100: ("CUDA_UNAVAILABLE", "DEVICE_FILE_BLOCKED", "DEVICE_FILE_OUTDATED"),
    999: ("CUDA_UNAVAILABLE", "DEVICE_FILE_BLOCKED", "DEVICE_FILE_OUTDATED"),
    803: ("NVML_UNAVAILABLE", "NVML_TROUBLE"),
}
# What a program says of a GPU of which other pods have the memory, or all places of the MPS daemon,
# or which only one process may use.
_IN_USE = (2, 46, 805, 806, 807, 808, 809)
# A finding that names a GPU explains every error of a program on it.
_OF_A_GPU = (
    "GPU_FAULTY",
    "GPU_UNRELIABLE",
    "GPU_ERROR_LOGGED",
    "GPU_UNHEALTHY",
    "COMPUTE_PROHIBITED",
    "MIG_EMPTY",
    "NVML_COUNT_DIFFERS",
)
# CUDA 13 has no code for generations older than Turing, and says 46 instead of 209.
_WITHOUT_CUDA_13 = ("Kepler", "Maxwell", "Pascal", "Volta")


def proven(smoke: SmokeRow) -> list[str]:
    """Return the UUIDs of the GPUs that passed: that computed, or that a pod listed."""
    listed = dict.fromkeys(smoke["uuids"])
    if smoke.get("level", LIST) == LIST:
        return [*listed]
    computed = {one["uuid"] for one in smoke.get("results", ()) if one["ok"]}
    return [uuid for uuid in listed if uuid in computed]


def has_failures(smoke: SmokeRow) -> bool:
    """Tell whether the results of the programs say why a pod failed."""
    return bool(smoke.get("results")) and (
        not all(one["ok"] for one in smoke["results"]) or _exchange(smoke)["state"] == "failed"
    )


def image_evidence(node: Node) -> dict[str, str]:
    """Return the evidence of COMPUTE_IMAGE_UNKNOWN and COMPUTE_PROGRAM_MISSING."""
    return {
        "driver": node["nvml"]["driver_version"] or "of this node",
        "gpus": ", ".join(_generations(node)),
        "default": cuda_images.IMAGES[0].name,
    }


def judge_computed(
    host: str, node: Node, smoke: SmokeRow, evident: Collection[Mapping[str, str]]
) -> Iterator[dict[str, str]]:
    """Judge what the programs printed. `evident` are the findings about the node."""
    failed: dict[str, list[Result]] = {}
    for result in smoke["results"]:
        if not result["ok"] and not _is_explained(node, result, evident):
            failed.setdefault(result["error"], []).append(result)
    for error, results in failed.items():
        uuids = [result["uuid"] for result in results]
        for known, gpus in _groups(node, smoke, cuda_errors.recognise(error), uuids):
            yield _judge_error(host, node, smoke, error, known, gpus)
    if _exchange(smoke)["state"] == "failed" and is_sound(evident):
        yield finding("EXCHANGE_FAILED", host, error=quote(_exchange(smoke)["message"]))


def judge_unproven(
    host: str, node: Node, smoke: SmokeRow, evident: Collection[Mapping[str, str]]
) -> Iterator[dict[str, str]]:
    """Yield what the node could not prove about its GPUs' exchange of data: mostly a notice.

    Through NVSwitches, all GPUs have access to each other, unless they are in several partitions,
    or are cards beside them. Without, GPUs of different CPUs have none, so that only a GPU that has
    access to no other one is worth a word.
    """
    exchange = _exchange(smoke)
    is_switched = is_needed(node) and node["fabric"]["mode"] != PARTITIONS
    is_switched = is_switched and len({gpu["device"] for gpu in node["pci"]}) == 1
    is_alone = bool(exchange.get("alone"))
    if is_switched and is_alone:
        if is_sound(evident):
            yield finding("EXCHANGE_FAILED", host, error=quote(exchange["message"]))
    elif (
        exchange["state"] == "nothing"
        or (exchange["state"] == "partial" and (is_alone or is_switched))
        or (exchange["state"] == "not_run" and smoke["state"] == "ok")
    ):
        yield finding("EXCHANGE_UNPROVEN", host, evidence=exchange["message"] or "it did not run")


def _exchange(smoke: SmokeRow) -> Exchange:
    return smoke.get("exchange") or {"state": "", "message": ""}


def _groups(
    node: Node, smoke: SmokeRow, known: cuda_errors.CudaError | None, uuids: list[str]
) -> list[tuple[cuda_errors.CudaError | None, list[str]]]:
    """Divide the GPUs with the same error by its cause. The image is one for all."""
    if known is None or _lacks_code(node, smoke, known, uuids):
        return [(known, uuids)]
    return [*cuda_causes.groups(known, node, smoke, uuids).items()]


def _judge_error(
    host: str,
    node: Node,
    smoke: SmokeRow,
    error: str,
    known: cuda_errors.CudaError | None,
    uuids: list[str],
) -> dict[str, str]:
    gpus = ", ".join(name_gpu(node, uuid) for uuid in uuids)
    if cuda_errors.WRONG_RESULT in error:
        return finding("COMPUTE_WRONG", host, gpus=gpus, error=quote(error))
    if known and _is_in_use(known.number, node, smoke, uuids):
        holders = ", ".join(smoke["holders"])
        evidence = f"its share of {gpus} has no room for it ({quote(error)}); claimed by {holders}"
        return finding("SMOKE_NOT_RUN", host, evidence=evidence)
    if known and (known.fault == cuda_errors.IMAGE or _lacks_code(node, smoke, known, uuids)):
        words = f"{quote(error)} (CUDA error {known.number}): {_misfit(node, known)}"
        return finding("COMPUTE_IMAGE_UNFIT", host, image=smoke.get("image", ""), error=words)
    if known is None:
        cause = "not known; the program may not fit the node, or the GPU hangs"
        remedy = "read the kernel log with `dmesg | grep -i -e nvrm -e xid` on the node, and run a "
        remedy += "CUDA program on the GPU by hand"
    else:
        cause, remedy = known.cause, known.remedy
    return finding(
        "COMPUTE_FAILED",
        host,
        gpus=gpus,
        error=quote(error),
        number=f" (CUDA error {known.number})" if known else "",
        cause=cause,
        remedy=remedy,
    )


def _is_in_use(number: int, node: Node, smoke: SmokeRow, uuids: Collection[str]) -> bool:
    """Tell whether other pods explain an error, on a GPU that is shared with them."""
    if number not in _IN_USE or not smoke.get("shared") or not smoke["holders"]:
        return False
    # Where many processes may use a GPU, no other one keeps it busy.
    modes = {gpu["compute_mode"] for gpu in node["health"]["gpus"] if gpu["uuid"] in uuids}
    return number != 46 or modes != {"Default"}


def _misfit(node: Node, error: cuda_errors.CudaError) -> str:
    newer = sorted(_generations(node).keys() & {*cuda_images.UNPROVEN})
    if error.number in (209, 222) and newer:
        return f"NVIDIA's images with vectorAdd are older than {' and '.join(newer)}"
    if error.number == 46:
        return "CUDA 13 does not support this generation of GPUs"
    return error.cause


def _lacks_code(
    node: Node, smoke: SmokeRow, error: cuda_errors.CudaError, uuids: list[str]
) -> bool:
    """Tell whether 46 means that the image has a CUDA 13 program: all GPUs are too old for it."""
    if cuda_images.find(smoke.get("image", "")):
        return False
    is_of_all = len(uuids) == len(node["pci"])
    is_old = _generations(node).keys() <= {*_WITHOUT_CUDA_13}
    return error.number == 46 and is_of_all and is_old


def _generations(node: Node) -> dict[str, None]:
    """Return the generations of the node's GPUs, each once, in the order of the bus."""
    return dict.fromkeys(gpu_models.generation(gpu["device"]).name for gpu in node["pci"])


def name_gpu(node: Node, uuid: str) -> str:
    """Name a GPU by its index, PCI address and UUID. An instance of MIG has only a UUID."""
    for gpu in node["nvml"]["devices"]:
        if gpu["uuid"] == uuid:
            return f"GPU {gpu['index']} ({gpu['pci_address']}, {uuid})"
    return uuid


def _is_explained(node: Node, result: Result, evident: Collection[Mapping[str, str]]) -> bool:
    known = cuda_errors.recognise(result["error"])
    # A notice explains nothing: the node would be well with it.
    evident = [one for one in evident if one["severity"] != NOTICE]
    codes = {one["code"] for one in evident}
    if known and codes.intersection(_EXPLAINED_BY.get(known.number, ())):
        return True
    addresses = [
        gpu["pci_address"] for gpu in node["nvml"]["devices"] if gpu["uuid"] == result["uuid"]
    ]
    names = [result["uuid"], *filter(None, addresses)]
    return any(
        name in one["message"] for one in evident if one["code"] in _OF_A_GPU for name in names
    )
