# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compute on the free GPUs in pods, as `metal.gpu.verify` does.

The pods are gone at the end, also after Ctrl-C.
"""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils import interrupts
from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    proof_pod,
    smoke,
    smoke_output,
    smoke_pod,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import KubeError
from ansible_collections.metal.gpu.plugins.module_utils.read import cuda_images
from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import SmokeRow
from metal_gpu.cluster.look import GPU, Facts

IMAGE = cuda_images.IMAGES[0].name  # for the driver that most nodes have


class Settings(NamedTuple):
    """How the pods run."""

    namespace: str = "default"
    image: str = IMAGE
    level: str = smoke_output.COMPUTE
    runtime_class: str | None = None
    timeout_s: int = 300


def why_not(client: Client, namespace: str) -> str:
    """Return why this user can run no pods in a namespace; empty if it can."""
    action = {"verb": "create", "resource": "pods", "namespace": namespace}
    try:
        if client.is_allowed(action):
            return ""
    except KubeError as error:
        return f"no pods prove the GPUs: {error}"
    return (
        f"no pods prove the GPUs, because this user may not create pods in the namespace "
        f"{namespace} (`kubectl auth can-i create pods --namespace {namespace}`)"
    )


def prove(client: Client, facts: Facts, settings: Settings) -> dict[str, SmokeRow]:
    """Return the result of each node that is ready and has allocatable GPUs. Raises KubeError."""
    shared, renamed, listed = {}, {}, []
    names = []
    for name, row in facts.rows.items():
        resources = row.get("resources") or {}
        if not row["ready"] or not any(one["allocatable"] for one in resources.values()):
            continue
        names.append(name)
        if wanted := row.get("wanted"):
            if wanted["shared"]:
                shared[name] = wanted["resource"]
            elif wanted["resource"] != GPU:
                renamed[name] = wanted["resource"]
            listed += [name] if wanted["mps"] else []
    if not names:
        return {}
    common = {
        "namespace": settings.namespace,
        "resource": GPU,
        "image_pull_secrets": [],
        "tolerations": proof_pod.ARGUMENTS["tolerations"]["default"],
        "wait_timeout": settings.timeout_s,
    }
    template = smoke_pod.Template(
        **proof_pod.new_run(common),
        image=settings.image,
        runtime_class=settings.runtime_class,
        level=settings.level,
        listed=listed,
    )
    interrupts.raise_on_signals()
    found: dict[str, SmokeRow] = smoke.run(
        client,
        dict.fromkeys(names),
        template,
        wait_for_gpus=False,
        check_mode=False,
        shared=shared,
        renamed=renamed,
    )["nodes"]
    return found
