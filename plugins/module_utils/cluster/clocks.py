# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Compare the clocks of nodes with that of the API server.

A kubelet renews its Lease every 10 s, and writes the time of its own node. Kubernetes itself does
not compare it with any other clock, so a node whose clock is wrong stays Ready.

Source: https://kubernetes.io/docs/concepts/architecture/leases/#node-heart-beats
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.cluster import pod_status
from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import Cause
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import NodeStatus

# A Ready node has renewed its Lease within the last minute: 50 s is the grace period of the node
# controller by default. Twice that is a clock that is behind.
LIMIT_S = 120


def find(node: NodeStatus, lease: Mapping[str, Any] | None, server_date: str) -> Cause | None:
    """Return that the clock of a Ready node differs from that of the API server.

    `server_date` is the header of the answer with the Lease.
    """
    renewed = pod_status.parse_time(section(lease, "spec").get("renewTime")) if lease else None
    if renewed is None or renewed.tzinfo is None or not node.ready:
        return None
    try:
        difference_s = (renewed - parsedate_to_datetime(server_date)).total_seconds()
    except (TypeError, ValueError):
        return None
    if abs(difference_s) <= LIMIT_S:
        return None
    way = "ahead of" if difference_s > 0 else "behind"
    return Cause("NODE_CLOCK_OFF", {"seconds": f"{abs(difference_s):.0f}", "way": way})
