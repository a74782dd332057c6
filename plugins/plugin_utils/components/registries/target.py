# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where does the engine of a node look for registries, and what is in its way?"""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import dirname, join

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import containerd
from ansible_collections.metal.gpu.plugins.module_utils.read import registries as places
from ansible_collections.metal.gpu.plugins.module_utils.read.version import release
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import settings
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries import order
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.layout import (
    Layout,
    Target,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.shapes import Data
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.wanted import Registry
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    Edit,
    NoData,
    Plan,
    refuse_conflict,
    refuse_uneditable,
)

DROP_IN = "98-metal-gpu-registries.toml"
_IMAGES = "io.containerd.cri.v1.images"
# Since this version, containerd reads these folders without being told.
_READS_BY_DEFAULT = (2, 2)
# Since this version, containerd gets tokens with the login in the header of a mirror.
ASKS_FOR_TOKENS = (2, 1)
# Storage drivers of Docker's own image store; those of containerd's store have other names.
_OWN_STORE = ("aufs", "btrfs", "devicemapper", "fuse-overlayfs", "overlay2", "vfs", "zfs")
_BY_DEFAULT = [places.CONTAINERD, places.DOCKER]


def has_own_store(node: Node) -> bool:
    """Whether Docker has its own image store, and not that of containerd."""
    return node["engines"]["docker"]["storage_driver"] in _OWN_STORE


def find(node: Node, engine: str, registries: Sequence[Registry]) -> Target:
    """Return where the files of an engine are."""
    home = node["engines"]["containerd"]["home"]
    docker = node["engines"]["docker"]["config"]["path"]
    target: Target = {
        "kind": engine,
        "folders": {},
        "certificates": places.CONTAINERD,
        "daemon_json": docker,
        "logins": [places.KUBELET_LOGIN],
        "shares_login": False,
        "basic_only": False,
    }
    if engine == engines.DOCKER:
        target["certificates"] = places.DOCKER
        kubelet = [places.KUBELET_LOGIN] if node["kubelet"]["installed"] else []
        target["logins"] = [places.DOCKER_LOGIN, *kubelet]
        target["shares_login"] = has_own_store(node)
    elif engine == engines.CRIO:
        target["certificates"] = places.CONTAINERS
        target["logins"] = [node["engines"]["crio"]["auth_file"] or places.CRIO_LOGIN]
    elif home and home["name"] in places.REGISTRIES_YAML:
        target["kind"] = home["name"]
        target["certificates"] = places.CERTIFICATES_OF[home["name"]]
        target["logins"] = []
    else:
        version = node["engines"]["containerd"]["version"]
        target["basic_only"] = release(version or "0") < ASKS_FOR_TOKENS
        roots = _roots(node)
        target["certificates"] = roots[0]
        target["folders"] = {one.host: _folder(node, roots, one.host) for one in registries}
    return target


def _folders(node: Node) -> list[str]:
    """Return the folders that containerd is told to look into, or looks into by default."""
    engine = node["engines"]["containerd"]
    registry = engine["registry"]
    is_new = release(engine["version"] or "0") >= _READS_BY_DEFAULT
    if registry["folders"] or registry["mirrors"] or not is_new:
        return [one.rstrip("/") for one in registry["folders"]]
    return _BY_DEFAULT


def _is_read(node: Node) -> bool:
    """Whether containerd looks into its folders: it can take a list of them for one name."""
    folders = _folders(node)
    reads_lists = node["engines"]["containerd"]["registry"]["reads_lists"]
    return len(folders) == 1 or (len(folders) > 1 and reads_lists)


def _roots(node: Node) -> list[str]:
    """Return the folders in which containerd looks for a registry, or will after the plan."""
    return _folders(node) if _is_read(node) else _BY_DEFAULT[:1]


def _folder(node: Node, roots: Sequence[str], host: str) -> str:
    """Return the folder of a registry that containerd finds first, or a new one."""
    for root in roots:
        for name in places.folder_names(host):
            if name in node["registries"]["folders"].get(root, ()):
                return join(root, name)
    return join(roots[0], places.folder_names(host)[-1])


def config_path(node: Node, version: str) -> Edit | None:
    """Return the edit with which containerd reads the folders; None if it reads them already."""
    engine = node["engines"]["containerd"]
    if _is_read(node):
        return None
    config = engine["config"]
    config_version = config["version"] if config["exists"] else settings.new_config_version(version)
    table = settings.cri_plugin(config_version, version, config["cri_tables"])
    table = _IMAGES if table == settings.CRI_VERSION_3 else table
    path = config["path"] or settings.CONFIG
    if config["exists"]:
        target = settings.target(path, config["imports"], version)
        path = path if target == path else join(dirname(target), DROP_IN)
    merge: dict[str, object] = {"plugins": {table: {"registry": {"config_path": _roots(node)[0]}}}}
    is_own = not config["exists"] or path != config["path"]
    if is_own and config_version is not None:
        merge = {"version": config_version, **merge}
    return {"path": path, "merge": containerd.as_written(merge, config["outline"], version)}


def why_unread(node: Node) -> str:
    """Return why containerd would not read the files of registries."""
    version, folders = node["engines"]["containerd"]["version"], ":".join(_folders(node))
    if not folders:
        return f"containerd {version} has no config_path"
    return f"containerd {version} takes {folders} for the name of one folder"


def refuse_conflicts(plan: Plan[Data], node: Node, edit: Edit | None) -> None:
    """Refuse a containerd whose own file has mirrors or certificates, or whose file is not ours."""
    engine = node["engines"]["containerd"]
    registry, path = engine["registry"], engine["config"]["path"]
    if edit is None:
        return
    _refuse_other_folders(plan, node, edit["path"])
    named = [*registry["mirrors"], *(f"{host} (tls)" for host in registry["tls"])]
    if named:
        plan.refuse("REGISTRY_CONFLICT", path=path, found=", ".join(named))
    if home := engine["home"]:
        plan.refuse("REGISTRY_PATH_UNSET", name=home["name"], path=path, folder=_BY_DEFAULT[0])
    shadows = engine["config"]["imported_cri"]
    if shadows and not settings.merges(engine["version"] or "0"):
        plan.refuse(
            "CONTAINERD_IMPORT_REPLACES",
            files=", ".join(shadows),
            path=path,
            found=engine["version"],
        )
    if edit["path"] == path:
        refuse_uneditable(plan, path, engine["config"]["obstacle"])
        refuse_conflict(plan, engine["config"]["outline"], edit)


def _refuse_other_folders(plan: Plan[NoData], node: Node, path: str) -> None:
    """Refuse a list of folders that somebody has chosen, or that counts more than ours.

    containerd reads imported files one after the other, and the last config_path counts.
    """
    engine = node["engines"]["containerd"]
    config, version = engine["config"], engine["version"] or "0"
    named = config["imported_folders"] if settings.merges(version) else {}
    found = _folders(node)
    if later := settings.read_later(config, path, named):
        place, folders = ", ".join(later), ", ".join(named[one] or '""' for one in later)
    elif found not in ([], _BY_DEFAULT):
        places_named = [one for one, text in named.items() if text == ":".join(found)]
        place, folders = ", ".join(places_named) or config["path"], ":".join(found)
    else:
        return
    plan.refuse("REGISTRY_PATHS_UNREAD", path=place, found=folders, version=version)


def refuse_taken_folders(plan: Plan[NoData], node: Node, target: Target, wanted: Layout) -> None:
    """Refuse a folder whose certificates containerd would ignore beside a hosts.toml."""
    for document in wanted.documents:
        folder = dirname(document.path)
        names = node["registries"]["folders"].get(folder, [])
        others = [
            one
            for one in names
            if one.endswith((".crt", ".cert", ".key")) and one not in places.OWN
        ]
        is_first = places.HOSTS not in names and document.path.endswith(f"/{places.HOSTS}")
        if is_first and others and folder in target["folders"].values():
            plan.refuse("REGISTRY_FOLDER_TAKEN", folder=folder, files=", ".join(others))


def refuse_registry_first(
    plan: Plan[NoData], node: Node, target: Target, registries: Sequence[Registry]
) -> None:
    """Refuse a file of the admin with which containerd asks a registry before its mirrors.

    It asks the hosts in the order of the file, and ours are added at the end. Without fallback, it
    may not ask the registry at all.
    """
    for one in registries:
        path = join(target["folders"][one.host], places.HOSTS)
        found = node["registries"]["files"].get(path)
        if found is None or not one.mirrors:
            continue
        hosts, theirs = order.hosts(found), order.hosts_of_admin(found)
        own = [host for host in hosts if host in theirs and _bare(host) in (one.server, one.host)]
        is_first = any(
            mirror.api not in hosts[: hosts.index(host)] for host in own for mirror in one.mirrors
        )
        if own and (is_first or not one.fallback):
            plan.refuse("REGISTRY_FIRST", path=path, server=own[0], registry=one.host)


def _bare(host: str) -> str:
    return host.rpartition("://")[2].rstrip("/")
