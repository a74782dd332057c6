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
from ansible_collections.metal.gpu.plugins.module_utils.cluster.forbidden import (
    missing_permission,
    no_answer,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import KubeError
from ansible_collections.metal.gpu.plugins.module_utils.read import cuda_images
from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import SmokeRow
from metal_gpu.cluster.look import GPU, Facts, proof

IMAGE = cuda_images.IMAGES[0].name  # for the driver that most nodes have


class Settings(NamedTuple):
    """How the pods run."""

    namespace: str = "default"
    image: str = IMAGE
    level: str = smoke_output.COMPUTE
    runtime_class: str | None = None
    timeout_s: int = 300


def prove(
    client: Client, facts: Facts, settings: Settings
) -> tuple[dict[str, SmokeRow], list[dict[str, str]]]:
    """Return the result of each node that is ready and has allocatable GPUs.

    Also return why no pods ran. Without them, no GPU is proven.
    """
    action = {"verb": "create", "resource": "pods", "namespace": settings.namespace}
    try:
        if client.is_allowed(action):
            return _compute(client, facts, settings), []
        user = client.user() or "this user"
    except KubeError as error:
        return {}, [no_answer(str(error))]
    return {}, [missing_permission(user, "create", "pods", settings.namespace)]


def _compute(client: Client, facts: Facts, settings: Settings) -> dict[str, SmokeRow]:
    shared, renamed, listed = {}, {}, []
    names = []
    for name, row in facts.rows.items():
        resources = row.get("resources") or {}
        if not row["ready"] or not any(one["allocatable"] for one in resources.values()):
            continue
        names.append(name)
        resource, is_share = proof(row)
        if is_share:
            shared[name] = resource
        elif resource != GPU:
            renamed[name] = resource
        wanted = row.get("wanted")
        listed += [name] if wanted and wanted["mps"] else []
    if not names:
        return {}
    common = {
        "namespace": settings.namespace,
        "resource": GPU,
        "image_pull_secrets": [],
        "priority_class": proof_pod.PRIORITY_CLASS,
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
