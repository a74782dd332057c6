# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What must CRI-O's configuration contain for the NVIDIA runtime, and in which file?

The keys are in a file of their own, which CRI-O reads after its package's and most others'. A table
of a runtime replaces an earlier one as a whole, so the file has all keys that the runtime needs.
The monitor, its control group and the folder of the state are those of the runtime that starts the
containers in the end: without a monitor, CRI-O does not start (decision 043).

Source: cri-o/cri-o at v1.36.3, pkg/config/config.go; nvidia-container-toolkit#681.
"""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import Crio
from ansible_collections.metal.gpu.plugins.module_utils.read.crio import (
    DROP_INS,
    OCI,
    Runtime,
    reading_order,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Edit

DROP_IN = f"{DROP_INS}/99-metal-gpu.conf"
# Older versions cannot read CDI specifications of version 0.7.0, which the toolkit writes.
CDI_SINCE = "1.30.0"
BUILT_IN = ("crun", "runc")  # in the order of CRI-O's own preference


class LowLevel(NamedTuple):
    """A runtime of CRI-O that starts containers, and that NVIDIA's runtime calls."""

    path: str
    runtime: Runtime


def low_level(engine: Crio) -> list[LowLevel]:
    """Return the runtimes that NVIDIA's runtime can call, the default one first.

    Where NVIDIA's runtime is the default one, that is what the other files choose.
    """
    chosen = [name for name in engine["config"]["defaults"].values() if name != runtime.NAME]
    names = (engine["default_runtime"], *chosen[-1:], *BUILT_IN)
    found = {
        name: engine["runtimes"][name]
        for name in names
        if name and name != runtime.NAME and name in engine["runtimes"]
    }
    return [
        LowLevel(path, one)
        for one in found.values()
        if (one["type"] or "") in OCI and (path := one["binary"] or "").startswith("/")
    ]


def monitor(engine: Crio, base: Runtime) -> str | None:
    """Return the monitor of a runtime. A setting for all runtimes counts more."""
    return engine["monitor"] or base["monitor"]


def handler(engine: Crio, base: Runtime) -> dict[str, object]:
    """Return the table of the NVIDIA runtime, which calls the runtime `base`."""
    keys: dict[str, object] = {"runtime_path": runtime.PROGRAM, "runtime_type": "oci"}
    named = {
        "runtime_root": base["root"],
        "monitor_path": monitor(engine, base),
        "monitor_cgroup": base["monitor_cgroup"],
        "allowed_annotations": base["annotations"],
    }
    return {**keys, **{key: value for key, value in named.items() if value}}


def edit(engine: Crio, base: Runtime, *, default: str | None) -> Edit:
    """Return the keys to merge into the drop-in. `default` is the default runtime to set."""
    keys: dict[str, object] = {"runtimes": {runtime.NAME: handler(engine, base)}}
    if default:
        keys = {"default_runtime": default, **keys}
    return {"path": DROP_IN, "merge": {"crio": {"runtime": keys}}}


def later(paths: list[str]) -> list[str]:
    """Return the files that CRI-O reads after the drop-in of this collection."""
    order = reading_order({*paths, DROP_IN})
    return order[order.index(DROP_IN) + 1 :]
