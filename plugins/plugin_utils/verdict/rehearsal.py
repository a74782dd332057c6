# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which findings of a rehearsal wait for the real run. No function does I/O.

A run in check mode judges nodes that it has not changed. A bare node has no driver, and the run is
about to install it. Such a finding says nothing about what the real run comes to. What no role
mends, such as a GPU that is lost, stays a finding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from ansible_collections.metal.gpu.plugins.module_utils.findings import NOTICE
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read.device_files import UVM
from ansible_collections.metal.gpu.plugins.module_utils.verdict.cluster import judge_cluster
from ansible_collections.metal.gpu.plugins.module_utils.verdict.hardware import judge_cuda
from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import ClusterRow
from ansible_collections.metal.gpu.plugins.plugin_utils.components import COMPONENTS
from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import (
    cdi,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.steps import (
    ROLE as DRIVER,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime

Finding = Mapping[str, str]

DRIFT = "DRIFTED"
_SILENT_DRIVER = "NVML_UNAVAILABLE"
_NO_CUDA = "CUDA_UNAVAILABLE"
_OF_DRIVER = (
    *(_NO_CUDA, "DEVICE_FILE_OUTDATED"),
    *("FABRIC_MANAGER_MISSING", "FABRIC_MANAGER_STOPPED", "FABRIC_MANAGER_VERSION"),
    *("FABRIC_NOT_READY", "SUBNET_MANAGER_STOPPED"),
)
_ENGINE, _KUBELET = "ENGINE_STOPPED", "KUBELET_STOPPED"
_KUBELET_ROLE = "kubelet_device_plugins"
_STARTS = ("restart", "start")  # how the slugs of such steps begin
# What the device plugin says about a GPU, and not about itself.
_OF_GPUS = ("GPU_UNHEALTHY",)
# Why nvidia-smi does not answer before the driver is installed, loaded or exchanged.
_NOT_YET = ("library_mismatch", "not_installed")


def waiting(
    findings: Iterable[Finding],
    node: Mapping[str, Any] | None,
    work: Mapping[str, Collection[str]],
    cluster: ClusterRow | None,
    expected: int | None,
    *,
    is_plugin_pending: bool,
    is_complete: bool = True,
) -> list[Finding]:
    """Return those of a node's findings that wait for the real run.

    `work` has the slugs of steps by role, and `cluster` is the row of metal.gpu.gpu_capacity.
    `is_plugin_pending` is whether the real run changes the device plugin. `is_complete` is false if
    tags leave out a role with steps, because drift then stays.
    """
    if node is None:
        return []
    codes = {DRIFT} if is_complete else set()
    # A kubelet can have stopped for want of its engine.
    if _starts_engine(work):
        codes |= {_ENGINE, _KUBELET}
    elif _KUBELET_ROLE in work:
        codes |= {_KUBELET}
    if DRIVER in work:
        codes |= {*_OF_DRIVER}
        codes |= {_SILENT_DRIVER} if _is_driver_pending(node) else set()
    if cdi.GENERATE.slug in work.get(runtime.ROLE, ()) and _lacks_only_uvm(node):
        codes |= {_NO_CUDA}
    # The kubelet has GPUs only after everything below it, and then from the device plugin.
    if cluster is not None and (work or is_plugin_pending):
        name = node["kubelet"]["node_name"]
        codes |= {one["code"] for one in judge_cluster("", name, cluster, expected)}
        codes -= {*_OF_GPUS}
    return [one for one in findings if one["code"] in codes and one["severity"] != NOTICE]


def _starts_engine(work: Mapping[str, Collection[str]]) -> bool:
    """Tell whether a role installs or starts the engine, or restarts it for a change."""
    others = [slug for role in ("registries", runtime.ROLE) for slug in work.get(role, ())]
    has_own = any(one.engine and one.role in work for one in COMPONENTS)
    return has_own or any(slug.startswith(_STARTS) for slug in others)


def _lacks_only_uvm(node: Mapping[str, Any]) -> bool:
    """Tell whether CUDA lacks nothing but what nvidia-cdi-refresh.service loads and creates.

    Source: tests/recorded/device_files.yml
    """
    kernel = {**node["kernel"], "modules": [*node["kernel"]["modules"], "nvidia_uvm"]}
    files = [*node["device_files"], {"path": UVM}]
    mended = cast(Node, {**node, "kernel": kernel, "device_files": files})
    return not any(judge_cuda("", mended))


def _is_driver_pending(node: Mapping[str, Any]) -> bool:
    """Tell whether the driver does not answer because it is not set up."""
    failure = node["nvml"]["failure"]
    is_loaded = "nvidia" in node["kernel"]["modules"]
    return not is_loaded or (failure is not None and failure["code"] in _NOT_YET)
