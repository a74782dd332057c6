# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does the engine of a node use the desired registries, mirrors, certificates and logins?

docs/decisions/049-registries.md has the reasons for each file. A plan has no secrets.
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.mappings import flag
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import registries as places
from ansible_collections.metal.gpu.plugins.module_utils.read.docker import DEFAULT_RUNTIME
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd.plan import (
    refuse_config,
    refuse_fatal_start,
    refuse_unknown,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.plan import (
    refuse_config as refuse_docker_config,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.settings import validates
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    known_version,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries import (
    apply,
    files,
    logins,
    target,
    wanted,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.layout import (
    Layout,
    Target,
    layout,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.unsupported import (
    unsupported,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    Plan,
    PlanResult,
    edited,
    naming_rival,
    refuse_lost_history,
)

ROLE = places.ROLE

STEPS = (*files.STEPS, *apply.STEPS)


def plan(node: Node, desired: Desired) -> PlanResult:
    """Plan the files of registries."""
    plan = Plan[Data](desired["host"], {"asks": False, "config": None, "change": None})
    found = wanted.read(desired["hosts"] if desired["state"] == "present" else ())
    for problem in found.problems:
        plan.refuse(
            "VARIABLE_INVALID",
            name="registries_hosts",
            found=f"not usable: {problem.found}",
            expected=problem.expected,
            role=ROLE,
        )
    is_ours = edited(node, ROLE) or node["registries"]["certificates"]
    if plan.refusals or not (found.registries or is_ours):
        return plan.result()
    engine = engines.choose(node, desired["engine"])
    if desired["state"] == "present":
        engines.refuse_distribution(plan, node)
        engines.refuse_stopped_distribution(plan, node)
        engines.refuse(plan, node, desired["engine"])
    if not plan.refusals and found.registries and engine is not None:
        _plan_present(plan, node, desired, engine, found.registries)
    elif not plan.refusals:
        _plan_absent(plan, node, desired)
    refuse_lost_history(plan, node, ROLE)
    return plan.result()


def _plan_present(
    plan: Plan[Data],
    node: Node,
    desired: Desired,
    engine: str,
    registries: tuple[wanted.Registry, ...],
) -> None:
    place = target.find(node, engine, registries)
    plan.data["target"] = place
    for host, reason in unsupported(place, registries):
        plan.refuse("REGISTRY_UNSUPPORTED", registry=host, engine=place["kind"], reason=reason)
    home = node["engines"]["containerd"]["home"]
    if home and place["kind"] == engines.CONTAINERD:
        for one in registries:
            if one.trust.has_login:  # the folder of its kubelet has another name
                reason = f"nobody has recorded where the kubelet of {home['name']} has logins"
                plan.refuse(
                    "REGISTRY_UNSUPPORTED", registry=one.host, engine=home["name"], reason=reason
                )
    if place["kind"] == engines.DOCKER:
        _refuse_docker_hub(plan, node, registries)
    content = layout(place, registries)
    logins.refuse_hidden_logins(plan, node, content)
    if not flag(node, "engines", engine, "installed"):
        # The role of the engine runs before this one. What it installs is not observed yet.
        files.plan_new(plan, place, content, f"{engine} is not installed yet")
        apply.plan_new(plan, place, content)
        return
    plan.data["asks"] = desired["check"]
    if place["kind"] == engines.CONTAINERD:
        target.refuse_registry_first(plan, node, place, registries)
        _plan_config(plan, node, place, content)
    if place["kind"] == engines.CRIO:
        _refuse_prefixes(plan, node, registries)
    files.refuse_files(plan, node, content, place)
    files.plan_files(plan, node, content)
    mirrors = [mirror.url for one in registries for mirror in one.mirrors]
    _plan_apply(plan, node, desired, place["kind"], mirrors)


def _refuse_docker_hub(
    plan: Plan[Data], node: Node, registries: tuple[wanted.Registry, ...]
) -> None:
    """Refuse certificates for docker.io itself, which Docker's own image store does not look at.

    Also refuse another configuration of docker.io, which goes before registry-mirrors.
    """
    driver = node["engines"]["docker"]["storage_driver"]
    folder = f"{places.DOCKER}/{wanted.DOCKER_HUB}"
    for one in registries:
        if one.host != wanted.DOCKER_HUB:
            continue
        if one.trust.has_files and target.has_own_store(node):
            reason = f"Docker with the storage driver {driver} takes no certificates for docker.io"
            plan.refuse("REGISTRY_UNSUPPORTED", registry=one.host, engine="docker", reason=reason)
        names = node["registries"]["folders"].get(folder, ())
        if one.mirrors and places.HOSTS in names:
            plan.refuse("REGISTRY_TAKEN", path=f"{folder}/{places.HOSTS}", keys=one.host)


def _plan_config(plan: Plan[Data], node: Node, place: Target, content: Layout) -> None:
    """Plan that containerd reads the folders of registries."""
    refuse_config(plan, node)
    refuse_unknown(plan, node)
    version = known_version(plan, engines.CONTAINERD, node["engines"]["containerd"])
    target.refuse_taken_folders(plan, node, place, content)
    needs = any(one.path.endswith(f"/{places.HOSTS}") for one in content.documents)
    if version is None or not needs:
        return
    edit = target.config_path(node, version)
    target.refuse_conflicts(plan, node, edit)
    plan.data["config"] = edit
    if edit is not None:
        plan.step(files.CONFIG, naming_rival(target.why_unread(node), node, ROLE, edit["path"]))


def _refuse_prefixes(plan: Plan[Data], node: Node, registries: tuple[wanted.Registry, ...]) -> None:
    """Refuse registries that the admin has set, also in part.

    CRI-O uses one table of a name, and of several names the longest that an image begins with.
    """
    for one in registries:
        for prefix, path in node["registries"]["prefixes"].items():
            if one.mirrors and f"{prefix}/".startswith(f"{one.host}/"):
                plan.refuse("REGISTRY_TAKEN", path=path, keys=f"[[registry]] {prefix}")


def _plan_apply(
    plan: Plan[Data], node: Node, desired: Desired, kind: str, mirrors: list[str]
) -> None:
    written = {*plan.data.get("settings", ()), *plan.data.get("logins", ())}
    written |= {*plan.data.get("restore", ())}
    writes = node["engines"]["docker"]["config"]["path"] in plan.data.get("settings", ())
    # An engine that the admin has stopped reads its files when they start it.
    if kind == engines.CONTAINERD:
        if node["engines"]["containerd"]["running"]:
            apply.plan_containerd(plan, node)
        refuse_fatal_start(plan, node)
    elif kind == engines.CRIO:
        if node["engines"]["crio"]["running"]:
            apply.plan_crio(plan, node, written)
    elif kind == engines.DOCKER:
        refuse_docker_config(plan, node, ["registry-mirrors"] if writes else [])
        docker = node["engines"]["docker"]
        version = known_version(plan, "dockerd", docker)
        plan.data["validates"] = version is not None and validates(version)
        plan.data["expected"] = {
            "default_runtime": docker["default_runtime"] or DEFAULT_RUNTIME,
            "runtimes": [],
            "mirrors": mirrors,
        }
        if docker["running"]:
            apply.plan_docker(plan, node, written, mirrors)
    else:
        apply.plan_distribution(plan, node, written, is_permitted=desired["restart_ok"])


def _plan_absent(plan: Plan[Data], node: Node, desired: Desired) -> None:
    """Plan to undo what the role did, whichever engine the node uses now."""
    needs, is_permitted = apply.needs_certificates(node), desired["restart_ok"]
    files.plan_no_files(plan, node, keeps_certificates=needs and not is_permitted)
    apply.plan_back(plan, node, needs_certificates=needs, is_permitted=is_permitted)
    if plan.has_step(apply.RESTART):
        refuse_fatal_start(plan, node)
