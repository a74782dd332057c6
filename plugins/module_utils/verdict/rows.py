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


class PlannedStep(TypedDict):
    """A step with the reason for it."""

    slug: str
    name: str
    reason: str


class PlanResult(TypedDict):
    """A plan as data, for Ansible."""

    steps: list[PlannedStep]
    refusals: list[dict[str, str]]
    notices: list[dict[str, str]]
    data: Mapping[str, object]


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
    labels: Mapping[str, str]
    # The amounts of the resources that are GPUs or parts of GPUs, and what is expected of them.
    resources: Mapping[str, Amount]
    wanted: Wanted | None
    surroundings: Sequence[Cause]
    another: str  # what the cluster says about the machine, if it is not this one


class Amount(TypedDict):
    """Capacity and allocatable of a resource."""

    capacity: int
    allocatable: int


class Wanted(TypedDict):
    """What a node must have, given how its GPUs are shared."""

    resources: Mapping[str, int] | None  # None: nothing shows how many parts there must be
    known: Mapping[str, int]  # then, what is known all the same
    least: int  # then, at least how many parts there must be
    gpus: int | None  # whole ones
    source: str  # why these, empty if each GPU is one nvidia.com/gpu
    resource: str  # what the proof asks for
    shared: bool  # a pod gets a share of a GPU, or a part of it
    mps: bool  # a CUDA program of another user would disturb those that share the GPUs


class Result(TypedDict):
    """What a pod found out about one GPU."""

    uuid: str
    ok: bool
    error: str


class _Exchange(TypedDict):
    state: str
    message: str


class Exchange(_Exchange, total=False):
    """What a pod found out about copies between GPUs."""

    alone: Sequence[int]  # the GPUs that have access to no other one, as the pod numbers them


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
    level: str
    image: str
    results: Sequence[Result]
    exchange: Exchange | None
    claims: Mapping[str, str]  # namespace/name of the holders, by their UID
    shared: bool  # the pod asked for a share, so it did not see every GPU
    without_pod: bool  # Docker ran the program, without Kubernetes
    fits_driver: bool  # the image names a version of CUDA that the driver supports


class SeenLayer(TypedDict):
    """What a layer has: the addresses of GPUs, or only a number, or nothing is known."""

    number: int | None
    gpus: list[str] | None


class SeenGpu(TypedDict):
    """A GPU of a node, and the first layer that lacks it."""

    address: str
    uuid: str | None
    lost_at: str | None
    computed: bool | None  # by a program; None: none was asked
    busy: str | None  # the pod that holds it, as namespace/name


Layers = dict[str, Optional[Union[int, str]]]


class Verdict(TypedDict):
    """The judgement of a node."""

    host: str
    machine: Mapping[str, str | None]
    layers: Layers
    seen: Mapping[str, SeenLayer]
    gpus: list[SeenGpu]
    lost: list[str]  # lines about the GPUs of a failing node
    findings: list[dict[str, str]]
    ok: bool
    busy: bool  # pods hold all GPUs, so none is proven; neither well nor a failure
    level: str | None  # how far pods proved the GPUs; None: no pod ran


class Question(TypedDict):
    """What to query the cluster for."""

    node: str
    expected: int
    by_hand: dict[str, int]  # by resource; empty: it follows from `expected`
    split: int | None  # GPUs in MIG mode; None: unknown
    awaited: bool
    smoke: bool
    image: str  # of a CUDA program that fits the node; empty: none is known
    machine: dict[str, str | None]  # its ids
