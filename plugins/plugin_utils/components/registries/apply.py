# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How does an engine get to know changed files of registries?

containerd reads hosts.toml at each pull, and Docker and CRI-O their certificates and logins. What
they read only at their start is applied by a restart that stops no container. The restart of a
Kubernetes distribution is the admin's to permit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from posixpath import basename, dirname

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import registries as places
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import embedded
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import (
    plan as containerd,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio import plan as crio
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.layout import (
    Layout,
    Target,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.marks import (
    key_text,
    marks,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.shapes import Data
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    Change,
    Plan,
    Step,
    actor,
    unread_change,
)

RESTART = Step("restart", "Restart containerd")
RESTART_CRIO = Step("restart_crio", "Restart CRI-O")
RELOAD = Step("reload", "Reload Docker")
RESTART_DISTRIBUTION = embedded.RESTART

STEPS = (RESTART, RESTART_CRIO, RELOAD, RESTART_DISTRIBUTION)

_RELOAD_REASON = "Docker applies mirrors without a restart; containers keep running"

# What CRI-O reads only when it starts, or is reloaded.
_OF_CRIO = (places.CONTAINERS_DROP_IN, places.CRIO_DROP_IN)


def plan_new(plan: Plan[Data], target: Target, content: Layout) -> None:
    """Plan for an engine that starts, without the files, before this role runs."""
    paths = {one.path for one in content.documents}
    if target["kind"] == engines.CONTAINERD:
        reads = any(basename(path) == places.HOSTS for path in paths)
        plan.step(RESTART, containerd.RESTART_REASON if reads else None)
    elif target["kind"] == engines.CRIO:
        plan.step(RESTART_CRIO, crio.RESTART_REASON if paths.intersection(_OF_CRIO) else None)
    elif target["kind"] == engines.DOCKER:
        plan.step(RELOAD, _RELOAD_REASON if target["daemon_json"] in paths else None)


def plan_containerd(plan: Plan[Data], node: Node) -> None:
    """Plan the restart for config_path. Changes that somebody else has made are left to them."""
    edit = plan.data.get("config")
    unread = [path for path in node["registries"]["unread"] if path.endswith(".toml")]
    # A run can stop between the change and the restart.
    plan.data["change"] = _change(edit["path"]) if edit else unread_change(node, unread)
    reason = f"{', '.join(unread)} changed after containerd started" if unread else None
    plan.step(RESTART, containerd.RESTART_REASON if edit else reason)


def plan_crio(plan: Plan[Data], node: Node, written: Collection[str]) -> None:
    """Plan the restart. If CRI-O does not start, the file with the mirrors is undone."""
    changed = [path for path in _OF_CRIO if path in written]
    unread = [path for path in node["registries"]["unread"] if path in _OF_CRIO]
    plan.data["change"] = _change(changed[0]) if changed else unread_change(node, unread)
    reason = f"{', '.join(unread)} changed after CRI-O started" if unread else None
    plan.step(RESTART_CRIO, crio.RESTART_REASON if changed else reason)


def plan_docker(
    plan: Plan[Data], node: Node, written: Collection[str], mirrors: Sequence[str]
) -> None:
    """Plan the reload for mirrors. It proves by `docker info` what it uses.

    A run can stop between the change and the reload. What somebody else has changed since may not
    be meant for now. A key that is gone stays in force until the next start.
    """
    docker = node["engines"]["docker"]
    path, used = docker["config"]["path"], docker["mirrors"]
    unused = [one for one in mirrors if used is not None and one not in used]
    is_reordered = _is_reordered(node, path, mirrors, used or ())
    ours = [
        edit["actor"]
        for edit in node["ours"]["edits"]
        if edit["path"] == path and edit["untouched"]
    ]
    if path in plan.data.get("settings", ()):
        plan.data["change"] = _change(path)
        plan.step(RELOAD, _RELOAD_REASON)
    elif (unused or is_reordered) and ours and path not in written:
        plan.data["change"] = _change(path) if actor(places.ROLE) in ours else None
        what = f"does not use {', '.join(unused)} yet, which {path} has"
        if not unused:
            what = f"uses its mirrors in another order than {path} has"
        plan.step(RELOAD, f"Docker {what}")
    elif unused or is_reordered or path in written:
        plan.notice("REGISTRIES_RESTART_DUE", engine="Docker", unit="docker.service")


def _is_reordered(node: Node, path: str, mirrors: Sequence[str], used: Sequence[str]) -> bool:
    """Tell whether Docker uses the desired mirrors in another order than its file has them.

    The file can have another order than the variable: mirrors of the admin stay before.
    """
    file = node["registries"]["files"].get(path)
    listed = file["items"].get(key_text(("registry-mirrors",)), []) if file else []
    # Docker adds a slash at their end. With one, a mirror of the admin is the same as ours.
    ours = {form: one for one in mirrors for form in marks((one, f"{one}/"))}
    in_file = [ours[one] for one in listed if one in ours and ours[one] in used]
    in_use = [one for one in used if one in in_file]
    return [*dict.fromkeys(in_use)] != [*dict.fromkeys(in_file)]


def plan_distribution(
    plan: Plan[Data], node: Node, written: Collection[str], *, is_permitted: bool
) -> None:
    """Plan the restart of k3s or RKE2, or refuse without permission."""
    home = node["engines"]["containerd"]["home"]
    if home is None:
        return
    path = places.REGISTRIES_YAML[home["name"]]
    unread = path in node["registries"]["unread"]
    if path not in written and not unread:
        return
    plan.data["distribution"] = embedded.restarted(node, home)
    plan.data["change"] = _change(path) if path in written else unread_change(node, [path])
    reason = f"{home['name']} reads {path} only when it starts"
    if not is_permitted:
        plan.refuse("REGISTRIES_RESTART", name=home["name"], unit=home["unit"], path=path)
    plan.step(RESTART_DISTRIBUTION, reason)


def needs_certificates(node: Node) -> bool:
    """Tell whether a running k3s or RKE2 has certificates of the role in its own hosts.toml files.

    It writes these files when it starts. Without a certificate that a file names, containerd pulls
    nothing from the registry, also not from its other hosts.
    """
    engine, found = node["engines"]["containerd"], node["registries"]
    home = engine["home"]
    if not (home and home["name"] in places.REGISTRIES_YAML and engine["running"]):
        return False
    folders = {dirname(path) for path in found["certificates"]}
    named: set[str] = set()
    for ca, certificate, key in map(places.own_files, folders):
        named |= {*marks(([ca], [[certificate, key]]))}
    files = (file for path, file in found["files"].items() if basename(path) == places.HOSTS)
    return any(not named.isdisjoint(file["values"].values()) for file in files)


def plan_back(
    plan: Plan[Data], node: Node, *, needs_certificates: bool, is_permitted: bool
) -> None:
    """Plan that the engines forget what is restored."""
    restored = {*plan.data.get("restore", ())}
    found, home = node["engines"], node["engines"]["containerd"]["home"]
    if any(path.endswith(".toml") and basename(path) != places.HOSTS for path in restored):
        running = found["containerd"]["running"]
        plan.step(RESTART, containerd.RESTART_REASON if running else None)
    if restored.intersection(_OF_CRIO) and found["crio"]["running"]:
        plan.step(RESTART_CRIO, crio.RESTART_REASON)
    docker = found["docker"]
    if docker["config"]["path"] in restored and docker["running"]:
        plan.notice("REGISTRIES_RESTART_DUE", engine="Docker", unit="docker.service")
    if home and (needs_certificates or restored.intersection(places.REGISTRIES_YAML.values())):
        plan.data["distribution"] = embedded.restarted(node, home)
        if is_permitted:
            plan.step(RESTART_DISTRIBUTION, f"{home['name']} reads its settings at its start")
        elif found["containerd"]["running"]:
            plan.notice("REGISTRIES_RESTART_DUE", engine=home["name"], unit=home["unit"])


def _change(path: str) -> Change:
    return {"path": path, "actor": actor(places.ROLE)}
