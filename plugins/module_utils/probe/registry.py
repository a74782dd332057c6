# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""The components, and what to read on a node for each of them.

A new component adds a line to `PROBES`, and an import: Ansible sends only modules to a node that
are imported by name. On the controller, `components/NAME/observed.py` interprets what is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.probe.components import (
    container_toolkit,
    containerd,
    crio,
    docker,
    driver,
    fabric,
    health,
    kernel_log,
    kubelet,
    nfs,
    ours,
    packages,
    platform,
    registries,
    signed_modules,
)

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe

PROBES: dict[str, Probe] = {
    "platform": platform.PROBE,
    "driver": driver.PROBE,
    "health": health.PROBE,
    "fabric": fabric.PROBE,
    "kernel_log": kernel_log.PROBE,
    "container_toolkit": container_toolkit.PROBE,
    "containerd": containerd.PROBE,
    "docker": docker.PROBE,
    "crio": crio.PROBE,
    # After the engines, whose files name others.
    "registries": registries.PROBE,
    "kubelet": kubelet.PROBE,
    "nfs": nfs.PROBE,
    "packages": packages.PROBE,
    "ours": ours.PROBE,
    "signed_modules": signed_modules.PROBE,
}
