# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape of a whole observation, for planners and verdicts.

A planner that needs only its own component takes that component's `Observed`, which is a part.
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import (
    observed as container_toolkit,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import (
    observed as containerd,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio import observed as crio
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import observed as docker
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import observed as driver
from ansible_collections.metal.gpu.plugins.plugin_utils.components.fabric import observed as fabric
from ansible_collections.metal.gpu.plugins.plugin_utils.components.health import observed as health
from ansible_collections.metal.gpu.plugins.plugin_utils.components.kernel_log import (
    observed as kernel_log,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.kubelet import (
    observed as kubelet,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.nfs import observed as nfs
from ansible_collections.metal.gpu.plugins.plugin_utils.components.ours import observed as ours
from ansible_collections.metal.gpu.plugins.plugin_utils.components.packages import (
    observed as packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import (
    observed as platform,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries import (
    observed as registries,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.signed_modules import (
    observed as signed_modules,
)


class Engines(containerd.Engines, docker.Engines, crio.Engines):
    """The container engines, installed or not."""


class Node(
    platform.Observed,
    driver.Observed,
    fabric.Observed,
    health.Observed,
    kernel_log.Observed,
    container_toolkit.Observed,
    kubelet.Observed,
    registries.Observed,
    nfs.Observed,
    packages.Observed,
    ours.Observed,
    signed_modules.Observed,
):
    """The observation of a node, `gpu_node`."""

    engines: Engines  # container engines, installed or not
