# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The shape of a whole observation, for planners and verdicts."""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed import (
    containers,
    engines,
    gpus,
    machine,
)


class Engines(engines.ContainerdEngine, engines.DockerEngine, engines.CrioEngine):
    """The container engines, installed or not."""


class Node(
    machine.MachinePart,
    gpus.DriverPart,
    gpus.FabricPart,
    gpus.HealthPart,
    gpus.KernelLogPart,
    containers.ToolkitPart,
    containers.KubeletPart,
    containers.RegistriesPart,
    machine.NfsPart,
    machine.PackagesPart,
    machine.OursPart,
    machine.SignedModulesPart,
):
    """The observation of a node, `gpu_node`."""

    engines: Engines
