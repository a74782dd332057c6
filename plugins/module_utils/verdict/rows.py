# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""The shapes of what reconcile compares with an observation, and of its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, TypedDict, Union

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Cause(TypedDict):
    """Why the cluster or the pods differ from the node: a finding, less its host."""

    code: str
    evidence: Mapping[str, object]


class _ClusterRow(TypedDict):
    state: str
    ready: bool | None
    readiness: str
    capacity: int | None
    allocatable: int | None
    evidence: Sequence[str]


class ClusterRow(_ClusterRow, total=False):
    """A row of metal.gpu.gpu_capacity."""

    cause: Cause | None
    surroundings: Sequence[Cause]


class _SmokeRow(TypedDict):
    state: str
    reason: str
    message: str
    uuids: Sequence[str]
    gpus: int
    holders: Sequence[str]
    events: Sequence[str]
    pod: str
    namespace: str


class SmokeRow(_SmokeRow, total=False):
    """A row of metal.gpu.gpu_smoke_pod."""

    allocatable: int | None
    cause: Cause | None
    left_behind: str


Layers = dict[str, Optional[Union[int, str]]]


class Verdict(TypedDict):
    """The judgement of a node."""

    host: str
    machine: Mapping[str, str | None]
    layers: Layers
    findings: list[dict[str, str]]
    ok: bool


class Question(TypedDict):
    """What to query the cluster for."""

    node: str
    expected: int
    awaited: bool
    smoke: bool
