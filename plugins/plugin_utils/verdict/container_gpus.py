# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPUs of a container without Kubernetes, beside those of its host. No function does I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import quote
from ansible_collections.metal.gpu.plugins.module_utils.cluster.docker_proof import Proof
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_output import Result
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import cuda_errors
from ansible_collections.metal.gpu.plugins.module_utils.verdict import compute

Users = Mapping[str, Sequence[str]]  # programs that use a GPU, by its UUID
_PART, _SPLIT = "MIG-", "Enabled"
_NO_MEMORY, _TAKEN = 2, 46  # errors of CUDA
_SHARED = "Default"  # the compute mode in which many programs may use a GPU
_BUSY = "CONTAINER_GPUS_BUSY"


def compare(name: str, node: Node, proof: Proof) -> list[dict[str, str]]:
    """Compare the GPUs of a container with those of the host.

    Of those that MIG splits, it has the parts: at least as many as are known.
    """
    seen = [one.uuid for one in proof.results]
    uuids = [gpu["uuid"] for gpu in node["nvml"]["devices"]]
    whole, least = _whole(node, proof), _parts(node, proof)
    parts = sum(uuid.startswith(_PART) for uuid in seen)
    missing = [uuid or "a GPU without UUID" for uuid in whole if uuid not in seen]
    others = [uuid for uuid in seen if uuid not in uuids and not uuid.startswith(_PART)]
    has_none = bool(uuids) and not seen
    if not missing and not others and not has_none and parts >= least:
        return []
    texts = [f"not {', '.join(missing)}"] if missing else []
    texts += [f"but {', '.join(others)}, which the host does not have"] if others else []
    if parts < least:
        texts.append(f"{parts} of {least} parts of those that MIG splits")
    elif len(whole) < len(uuids) and not least:
        texts.append(f"{'no part of those' if has_none else 'not counted: those'} that MIG splits")
    texts += [quote(proof.trouble)] if proof.trouble else []
    expected = len(whole) + least
    numbers = {
        "found": len(whole) - len(missing) + min(parts, least),
        "expected": max(expected, len(uuids)) if has_none else expected,
        "what": "GPUs or their parts" if least else "GPUs",
    }
    return [finding("CONTAINER_GPUS_DIFFER", name, **numbers, evidence="; ".join(texts))]


def count(node: Node, proof: Proof) -> int:
    """Return on how many GPUs, or parts of GPUs, the image had to compute."""
    seen = [one.uuid for one in proof.results]
    uuids = [gpu["uuid"] for gpu in node["nvml"]["devices"]]
    whole = _whole(node, proof)
    split = [uuid for uuid in uuids if uuid not in whole]
    parts = sum(uuid.startswith(_PART) or uuid in split for uuid in seen)
    return max(len(whole) + max(parts, _parts(node, proof)), len(uuids))


def in_use(node: Node, proof: Proof, users: Users) -> tuple[Proof, list[Result]]:
    """Take off the results that say nothing about the GPUs, because other programs use these."""
    modes = {gpu["uuid"]: gpu["compute_mode"] for gpu in node["health"]["gpus"]}
    busy = []
    for one in proof.results:
        known = None if one.ok else cuda_errors.recognise(one.error)
        number = known.number if known else None
        is_taken = number == _TAKEN and modes.get(one.uuid) != _SHARED
        if (number == _NO_MEMORY or is_taken) and _users(node, one.uuid, users):
            busy.append(one)
    return proof._replace(results=tuple(one for one in proof.results if one not in busy)), busy


def explain(
    name: str, node: Node, image: str, busy: Sequence[Result], users: Users
) -> list[dict[str, str]]:
    """Return the notice about GPUs that other programs use."""
    if not busy:
        return []
    gpus = ", ".join(compute.name_gpu(node, one.uuid) for one in busy)
    programs = dict.fromkeys(text for one in busy for text in _users(node, one.uuid, users))
    errors = dict.fromkeys(quote(one.error) for one in busy)
    evidence = {"users": ", ".join(programs), "error": "; ".join(errors)}
    return [finding(_BUSY, name, image=image, gpus=gpus, **evidence)]


def is_busy(findings: Iterable[Mapping[str, str]], proof: Proof) -> bool:
    """Tell whether a host proves nothing, because other programs use its GPUs."""
    is_proven = any(one.ok for one in proof.results)
    return not is_proven and any(one["code"] == _BUSY for one in findings)


def _users(node: Node, uuid: str, users: Users) -> Sequence[str]:
    """Return the programs on a GPU. Those on a GPU that is split may be on any part of it."""
    if not uuid.startswith(_PART):
        return users.get(uuid, ())
    split = [gpu["uuid"] or "" for gpu in node["health"]["gpus"] if gpu["mig"] == _SPLIT]
    return [text for one in (uuid, *split) for text in users.get(one, ())]


def _whole(node: Node, proof: Proof) -> list[str | None]:
    """Return the UUIDs of the GPUs that a container must have as they are.

    Of a GPU in MIG mode, it has the parts. They have UUIDs of their own, which do not tell whose
    parts they are. Where there are parts, a GPU that reports no mode may be the one. A container
    for each GPU has whatever is of this GPU.
    """
    uuids = [gpu["uuid"] for gpu in node["nvml"]["devices"]]
    if proof.by_uuid:
        return uuids
    modes = {gpu["uuid"]: gpu["mig"] for gpu in node["health"]["gpus"]}
    unknown = _SPLIT if any(one.uuid.startswith(_PART) for one in proof.results) else None
    return [uuid for uuid in uuids if modes.get(uuid, unknown) != _SPLIT]


def _parts(node: Node, proof: Proof) -> int:
    """Return how many parts of GPUs a container must have, as far as the host reports them."""
    split = [gpu for gpu in node["health"]["gpus"] if gpu["mig"] == _SPLIT]
    return 0 if proof.by_uuid else sum(len(gpu["mig_instances"] or ()) for gpu in split)
