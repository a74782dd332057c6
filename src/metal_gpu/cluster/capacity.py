# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the cluster says about machines that were observed, for `Fleet.verify`.

The names of the nodes and their numbers of GPUs come from the machines and from the inventory, and
the cluster gets time to report them. Where there is only a kubeconfig, look.py answers instead: it
finds the nodes itself, and the cluster's own labels say how many GPUs each must have. Both get
their rows from the library of metal.gpu.gpu_capacity.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import ClusterRow, Question

RESOURCE = "nvidia.com/gpu"


class Answer(NamedTuple):
    """The rows by name of the node, or why there are none."""

    rows: Mapping[str, ClusterRow]
    unanswered: Sequence[Mapping[str, str]]


def ask(
    questions: Sequence[Question], kubeconfig: str | None, context: str | None, wait_s: int
) -> Answer:
    """Query the cluster about all nodes at once. It gets `wait_s` to report what is expected."""
    from ansible_collections.metal.gpu.plugins.module_utils.cluster import capacity, kube_settings
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.forbidden import no_answer
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import KubeError
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.quantity import parse_quantity

    if not questions:
        return Answer({}, ())
    options: dict[str, object] = dict.fromkeys(kube_settings.AUTH_ARGUMENTS)
    options["kubeconfig"] = kubeconfig or os.environ.get("K8S_AUTH_KUBECONFIG")
    options["context"] = context or os.environ.get("K8S_AUTH_CONTEXT")
    amounts = {one["node"]: parse_quantity(str(one["expected"])) for one in questions}
    awaited = {one["node"] for one in questions if one["awaited"]}
    try:
        result = capacity.run(
            kube_settings.connect(options),
            {name: amount for name, amount in amounts.items() if name in awaited},
            RESOURCE,
            wait_s,
            {name: amount for name, amount in amounts.items() if name not in awaited},
            True,
            give_up=True,
            surroundings=True,
            by_hand={one["node"]: one["by_hand"] for one in questions},
            split={one["node"]: one["split"] for one in questions},
        )
    except KubeError as error:
        return Answer({}, [no_answer(str(error))])
    unanswered = [no_answer(result["error"])] if result["error"] else []
    return Answer(cast(Mapping[str, ClusterRow], result["nodes"]), unanswered)
