# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Do files still name GPUs that the node no longer has, or name one twice?

Only notices: where such a name does harm, the pods or the numbers of the cluster show it, and these
findings explain it.
"""

from __future__ import annotations

from posixpath import basename, dirname, splitext
from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read.cdi import DIRECTORIES
from ansible_collections.metal.gpu.plugins.module_utils.read.kubelet_devices import (
    CHECKPOINT,
    gpu_uuid,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ansible_collections.metal.gpu.plugins.module_utils.observed.gpus import Device
    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node

_OF_GPUS = "nvidia.com/gpu="


def name_gpu(device: Device) -> str:
    """Return the best name of a device of an observation; a lost GPU may have no UUID."""
    return device["uuid"] or device["pci_address"] or f"GPU {device['index']}"


def judge_names(host: str, node: Node, *, is_whole: bool) -> Iterator[dict[str, str]]:
    """Judge the names in files. `is_whole` is whether no finding is about a missing GPU.

    With one, that is what the files still name.
    """
    yield from _named_twice(host, node)
    here = _uuids(node)
    if here is None or not is_whole:
        return
    for path, names in node["cdi"]["names"].items():
        gone = _gone((name.partition("=")[2] for name in names), here)
        if gone:
            yield finding("CDI_GPU_GONE", host, path=path, uuids=", ".join(gone))
    devices = node["kubelet"]["devices"]
    registered = devices["registered"].values() if devices else ()
    gone = _gone((one for ids in registered for one in ids), here)
    if gone:
        yield finding("KUBELET_DEVICES_OUTDATED", host, path=CHECKPOINT, uuids=", ".join(gone))


def _uuids(node: Node) -> set[str] | None:
    """Return the UUIDs of the node's GPUs; None if nvidia-smi does not show all of them."""
    uuids = {gpu["uuid"] for gpu in node["nvml"]["devices"]}
    if not node["nvml"]["complete"] or None in uuids:
        return None
    return {uuid for uuid in uuids if uuid}


def _gone(names: Iterable[str], here: set[str]) -> list[str]:
    uuids = dict.fromkeys(uuid for name in names if (uuid := gpu_uuid(name)))
    return [uuid for uuid in uuids if uuid not in here]


def _named_twice(host: str, node: Node) -> Iterator[dict[str, str]]:
    """Yield the devices that two files have.

    Of one directory, engines use neither. A file in a directory that engines read later replaces
    one in an earlier directory.
    """
    files: dict[str, list[str]] = {}
    for path, names in node["cdi"]["names"].items():
        for name in dict.fromkeys(names):
            if _OF_GPUS in name:
                files.setdefault(name, []).append(path)
    twice: dict[tuple[str, ...], list[str]] = {}
    shadowed: dict[tuple[str, str], list[str]] = {}
    for name, paths in files.items():
        folders: dict[str, list[str]] = {}
        for path in paths:
            folders.setdefault(dirname(path), []).append(path)
        for together in folders.values():
            if len(together) > 1:
                twice.setdefault(tuple(together), []).append(name)
        used = _last_read(paths)
        for path in paths:
            if dirname(path) != dirname(used) and len(folders[dirname(used)]) == 1:
                shadowed.setdefault((path, used), []).append(name)
    for found, names in twice.items():
        yield finding(
            "CDI_DEVICE_TWICE",
            host,
            paths=" and ".join(found),
            names=", ".join(names),
            surplus=_surplus(node, found),
        )
    for (other, path), names in shadowed.items():
        yield finding("CDI_FILE_SHADOWED", host, other=other, path=path, names=", ".join(names))


def _last_read(paths: Iterable[str]) -> str:
    """Return the file whose directory engines read last."""
    return max(paths, key=lambda path: DIRECTORIES.index(dirname(path)))


def _surplus(node: Node, paths: Iterable[str]) -> str:
    """Name the files that no program writes; a file that one writes would come back."""
    paths = list(paths)
    by_hand = [path for path in paths if not _is_written(path, node["cdi"]["kinds"].get(path))]
    return " and ".join(by_hand) if 0 < len(by_hand) < len(paths) else "one of the files"


def _is_written(path: str, kind: str | None) -> bool:
    """Tell whether the name of a file is one that NVIDIA's programs write.

    The toolkit's service writes nvidia.yaml. The device plugin and the GPU Operator name a file
    after its kind.
    """
    stem, suffix = splitext(basename(path))
    return (stem, suffix) == ("nvidia", ".yaml") or stem == (kind or "").replace("/", "-")
