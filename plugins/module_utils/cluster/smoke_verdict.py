# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""The verdict on a smoke pod that has ended, from what its containers wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import smoke_output
from ansible_collections.metal.gpu.plugins.module_utils.cluster.pod_status import describe
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_output import (
    COMPUTE,
    CONTAINERS,
    EXCHANGE,
    LIST,
    Exchanged,
    Result,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NOT_STARTED = ("StartError", "ContainerCannotRun")
# nvidia-smi warns that the infoROM of a GPU is corrupted, exits with 14, and the GPU computes.
_WARNED = 14
_WARNING = "WARNING: infoROM is corrupted"


class Verdict(NamedTuple):
    """The result of a pod."""

    state: str  # "ok", "failed", "busy"; "unknown" if the server is silent; empty while undecided
    phase: str
    message: str
    uuids: tuple[str, ...] = ()
    ran: bool = False  # the container that lists the GPUs started and exited
    reason: str = ""  # why the container cannot start, such as "ErrImagePull"
    status: Mapping[str, Any] = {}  # last observed status of the pod
    refusal: str = ""  # the API server's message, if it rejected the pod
    results: tuple[Result, ...] = ()  # of each listed GPU, if a program ran
    exchanged: Exchanged | None = None  # at the level "exchange"
    container: str = ""  # that waits or failed
    has_program: bool = True  # the image has a program that computes


def judge_output(
    phase: str, ended: Mapping[str, Mapping[str, Any]], gpus: int, exchange: str = ""
) -> Verdict:
    """Judge what the containers wrote. `exchange` is the program that exchanges data."""
    listing = ended.get(CONTAINERS[LIST])
    if listing is not None:
        return _judge_listing(listing.get("message", ""), gpus)
    computed = smoke_output.parse_computed(ended.get(CONTAINERS[COMPUTE], {}).get("message", ""))
    uuids = tuple(result.uuid for result in computed.results)
    distinct = tuple(dict.fromkeys(uuids))
    other = ended.get(CONTAINERS[EXCHANGE])
    exchanged = None
    if other is not None:
        code, text = other.get("exitCode") or 0, other.get("message") or other.get("reason", "")
        exchanged = smoke_output.parse_exchanged(code, text, gpus, exchange)
    troubles = []
    if len(distinct) != gpus or len(distinct) != len(uuids):
        troubles.append(_miscount(gpus, uuids))
    # Of GPUs that are all there and compute, it says nothing.
    if computed.trouble and (troubles or not all(one.ok for one in computed.results)):
        troubles.append(computed.trouble)
    if not computed.has_program:
        troubles.append("the image has no vectorAdd")
    else:
        troubles += [f"{one.uuid}: {one.error}" for one in computed.results if not one.ok]
    if exchanged and exchanged.state == "failed":
        troubles.append(f"the GPUs do not exchange data: {exchanged.message}")
    return Verdict(
        "failed" if troubles else "ok",
        phase,
        "; ".join(troubles),
        distinct,
        ran=True,
        results=tuple({one.uuid: one for one in computed.results}.values()),
        exchanged=exchanged,
        has_program=computed.has_program,
    )


def _judge_listing(output: str, gpus: int) -> Verdict:
    uuids, rest = smoke_output.parse_uuids(output)
    rest = tuple(line for line in rest if not line.startswith(_WARNING))
    distinct = tuple(dict.fromkeys(uuids))
    if len(distinct) == len(uuids) == gpus and not rest:
        return Verdict("ok", "Succeeded", "", uuids, ran=True)
    message = _miscount(gpus, uuids)
    if rest:
        message += f"; it printed: {' '.join(rest)}"
    return Verdict("failed", "Succeeded", message, distinct, ran=True)


def _miscount(gpus: int, uuids: Sequence[str]) -> str:
    distinct = len({*uuids})
    message = f"the pod requested {gpus} GPUs, but nvidia-smi listed {distinct}"
    if distinct != len(uuids):
        message += f", some of them twice: {', '.join(uuids)}"
    return message


def is_result(pod: Mapping[str, Any], ended: Mapping[str, Mapping[str, Any]]) -> bool:
    """Tell whether a pod that failed has results: what ran wrote what it found, and exited."""
    computed = ended.get(CONTAINERS[COMPUTE], {})
    if pod["status"].get("reason") or computed.get("reason") in (*_NOT_STARTED, "OOMKilled"):
        return False
    other = ended.get(CONTAINERS[EXCHANGE], {})
    if other.get("reason") in _NOT_STARTED:
        return False
    listing = ended.get(CONTAINERS[LIST], {})
    if listing.get("exitCode") == _WARNED and _WARNING in listing.get("message", ""):
        return True
    found = smoke_output.parse_computed(computed.get("message", ""))
    return bool(found.results) or not found.has_program


def judge_failure(pod: Mapping[str, Any], ended: Mapping[str, Mapping[str, Any]]) -> Verdict:
    """Explain a pod in phase Failed: the kubelet rejected or killed it, or nvidia-smi failed.

    The script that computes exits with a code of its own, and writes that of nvidia-smi.
    """
    failed = (item for item in ended.items() if item[1].get("exitCode") != 0)
    name, last = next(failed, ("", {"reason": "StartError"}))
    if last.get("reason") in _NOT_STARTED or pod["status"].get("reason"):
        return Verdict("failed", "Failed", describe(pod), container=name)
    message = " ".join((last.get("message") or last.get("reason", "")).split())
    if last.get("reason") == "OOMKilled":
        text = f"the container {name} needed more memory than its limit allows: {message}"
        return Verdict("failed", "Failed", text, ran=True, container=name)
    text = f"nvidia-smi exited with code {last.get('exitCode')}: {message}"
    if name != CONTAINERS[LIST]:
        trouble = smoke_output.parse_computed(last.get("message", "")).trouble
        text = trouble or f"the container {name} exited with code {last.get('exitCode')}: {message}"
    return Verdict("failed", "Failed", text, ran=True, container=name)
