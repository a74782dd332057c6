# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which other tools and engines of a node are in the way of these roles?"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.mappings import flag, text
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import tools
from ansible_collections.metal.gpu.plugins.plugin_utils.components import ENGINES
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import NoData, Plan, edited

_KUBESPRAYS_CONTAINERD = "/usr/local/bin/containerd"


def refuse_cloud_image(plan: Plan[NoData], node: Node) -> None:
    """Refuse an image of a cloud, which writes the engine's configuration at each boot."""
    for name in tools.CLOUD_IMAGES:
        if name in node["tools"]:
            plan.refuse("CLOUD_IMAGE", name=name, evidence=tools.MARKS[name])


def refuse_operator_toolkit(plan: Plan[NoData], node: Node, engine: str | None) -> None:
    """Refuse an engine whose runtime nvidia is the GPU Operator's: both would write it in turns."""
    binary = text(node, "engines", engine or "", "runtimes", runtime.NAME, "binary")
    if binary and binary.startswith(f"{tools.OPERATOR_TOOLKIT}/"):
        plan.refuse("OPERATOR_TOOLKIT", engine=engine, found=binary)


def notice_kubespray(plan: Plan[NoData], node: Node, *, is_registered_now: bool) -> None:
    """Name the file of Kubespray that has our keys: its template imports no drop-ins."""
    engine = node["engines"]["containerd"]
    path, imports = engine["config"]["path"], engine["config"]["imports"]
    if tools.KUBESPRAY not in node["tools"] or engine["path"] != _KUBESPRAYS_CONTAINERD or imports:
        return
    # A file that changed since has the runtime from its own tool, or the plan registers it again.
    kept = [edit["path"] for edit in node["ours"]["edits"] if edit["untouched"]]
    if is_registered_now or (path in kept and path in edited(node, runtime.ROLE)):
        plan.notice("KUBESPRAY_OVERWRITES", path=path)


def notice_second_engine(plan: Plan[NoData], node: Node, engine: str | None) -> None:
    """Name an engine that runs and that the kubelet does not use."""
    found = node["engines"]
    home = found["containerd"]["home"]
    # The containerd of a distribution is a part of it, and never beside it.
    has_containerd = home["host_containerd"] if home else found["containerd"]["running"]
    is_embedded = home is not None and engine == engines.CONTAINERD
    running = {name: flag(found, name, "running") and name != engine for name in ENGINES}
    # Docker runs in containerd.service, too.
    running[engines.CONTAINERD] = has_containerd and (is_embedded or engine == engines.CRIO)
    others = {f"{name}.service": one.title for name, one in ENGINES.items() if running[name]}
    if others and engine:
        verb = "runs" if len(others) == 1 else "run"
        own = ENGINES[engine].title
        used = f"the containerd of {home['name']}" if home and is_embedded else own
        plan.notice(
            "ENGINE_BESIDE",
            others=f"{' and '.join(others.values())} {verb}",
            engine=used,
            unit=" ".join(others),
        )
