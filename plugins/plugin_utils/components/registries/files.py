# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which files of registries does a node lack, and which ones have to go?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from posixpath import basename, dirname

from ansible_collections.metal.gpu.plugins.module_utils.observed.containers import RegistryFile
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import registries as places
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries import order
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.layout import (
    Document,
    Layout,
    Target,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.marks import (
    key_text,
    leaves,
    mark,
    marks,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.shapes import Data
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan, Step, edited

CERTIFICATES = Step("certificates", "Write the certificates of registries")
REMOVE = Step("remove_certificates", "Remove certificates of registries")
RESTORE = Step("restore", "Restore the former settings of registries")
CONFIG = Step("config", "Tell containerd where the settings of registries are")
SETTINGS = Step("settings", "Write the settings of registries")
LOGINS = Step("logins", "Write the logins of registries")

STEPS = (CERTIFICATES, RESTORE, CONFIG, SETTINGS, LOGINS, REMOVE)

_ABSENT: RegistryFile = {
    "mode": None,
    "error": None,
    "obstacle": None,
    "values": {},
    "items": {},
    "ours": [],
    "our_items": {},
    "our_folders": [],
    "helpers": [],
}
_READABLE = 0o044  # by the group or by others


def plan_new(plan: Plan[Data], target: Target, content: Layout, reason: str) -> None:
    """Plan the files of an engine that is not there yet."""
    reads_folders = any(basename(one.path) == places.HOSTS for one in content.documents)
    for step in (
        *((CONFIG,) if reads_folders and target["kind"] == engines.CONTAINERD else ()),
        *((CERTIFICATES,) if content.files else ()),
        *((SETTINGS,) if any(not one.has_secrets for one in content.documents) else ()),
        *((LOGINS,) if any(one.has_secrets for one in content.documents) else ()),
    ):
        plan.step(step, reason)
    plan.data |= {"folders": [], "certificates": [], "restore": [], "settings": [], "logins": []}
    plan.data |= {"replace": [], "gone": [], "empty": [], "created": []}


def refuse_files(plan: Plan[Data], node: Node, content: Layout, target: Target) -> None:
    """Refuse files of the admin that have other values, or in which a secret would be seen."""
    for document in content.documents:
        found = _found(node, document.path)
        lacks = _lacking(document, found)
        if error := found["error"] or (found["obstacle"] if lacks else None):
            plan.refuse("CONFIG_NOT_EDITABLE", path=document.path, error=error)
            continue
        if taken := _taken(document, found):
            plan.refuse("REGISTRY_TAKEN", path=document.path, keys=", ".join(taken))
        mode = found["mode"]
        if document.has_secrets and mode and int(mode, 8) & _READABLE:
            plan.refuse("REGISTRY_FILE_READABLE", path=document.path, mode=mode)
        if document.path in target["logins"]:
            named = _table(document.merge.get("auths"))
            elsewhere = [one for one in named if {one, "*"} & {*found["helpers"]}]
            if elsewhere and document.path == places.DOCKER_LOGIN:
                registries = ", ".join(elsewhere)
                plan.refuse("REGISTRY_LOGIN_HELPER", path=document.path, registries=registries)


def plan_files(plan: Plan[Data], node: Node, content: Layout) -> None:
    """Plan what is missing, and the end of what is no longer desired."""
    _plan_certificates(plan, node, content.files)
    wanted = {one.path: one for one in content.documents}
    ours = [path for path in _of_role(node) if path in node["registries"]["files"]]
    stale = {path: [*_stale(wanted.get(path), _found(node, path))] for path in ours}
    misplaced = {
        path: order.misplaced(wanted[path], _found(node, path)) for path in ours if path in wanted
    }
    undone = [path for path in ours if stale[path] or misplaced.get(path)]
    lacking = {one.path: [*_lacking(one, _found(node, one.path))] for one in content.documents}
    written = {
        one.path: one.has_secrets
        for one in content.documents
        if lacking[one.path] or (one.path in undone and [*_lacking(one, _ABSENT)])
    }
    restore = _inside_out(node, [path for path in undone if path not in written])
    plan.data["restore"] = restore
    plan.data["replace"] = [path for path in written if path in undone]
    plan.data["settings"] = [path for path, has_secrets in written.items() if not has_secrets]
    plan.data["logins"] = [path for path, has_secrets in written.items() if has_secrets]
    plan.data["empty"] = _with_folders(plan.data["empty"], node, restore)
    for step, paths in (
        (RESTORE, restore),
        (SETTINGS, plan.data["settings"]),
        (LOGINS, plan.data["logins"]),
    ):
        reasons = {
            "": _places(_only(paths, lacking)),
            "no longer desired: ": _places(_only(paths, stale)),
            "in another order: ": _places(_only(paths, misplaced)),
        }
        plan.step(step, "; ".join(f"{why}{keys}" for why, keys in reasons.items() if keys))


def plan_no_files(plan: Plan[Data], node: Node, *, keeps_certificates: bool) -> None:
    """Plan to restore all files, and to remove the role's own."""
    own = [] if keeps_certificates else [*node["registries"]["certificates"]]
    plan.data["restore"] = _inside_out(node, _of_role(node))
    plan.data["gone"] = own
    plan.data["empty"] = _with_folders(node["registries"]["created"], node, plan.data["restore"])
    plan.data |= {"folders": [], "certificates": [], "settings": [], "logins": [], "created": []}
    plan.data["replace"] = []
    paths = ", ".join(plan.data["restore"])
    plan.step(RESTORE, f"this role changed {paths}" if paths else None)
    plan.step(REMOVE, f"this role wrote {', '.join(own)}" if own else None)


def _inside_out(node: Node, paths: Iterable[str]) -> list[str]:
    """Return files in the order in which each can take along the folders that were made for it.

    The first of several files made the folder of all, so it goes last.
    """

    def outermost(path: str) -> float:
        folders = _found(node, path)["our_folders"]
        return min((one.count("/") for one in folders), default=float("inf"))

    return sorted(paths, key=outermost, reverse=True)


def _with_folders(folders: Iterable[str], node: Node, restored: Iterable[str]) -> list[str]:
    """Return folders, and those of restored files: certificates can be in them until the end."""
    found = {one for path in restored for one in _found(node, path)["our_folders"]}
    return sorted({*folders, *found}, reverse=True)


def _plan_certificates(plan: Plan[Data], node: Node, wanted: Mapping[str, str]) -> None:
    found = node["registries"]["certificates"]
    exposed = [path for path in node["registries"]["exposed"] if path in wanted]
    missing = [
        path
        for path, text in wanted.items()
        if found.get(path) != mark(places.pem_blocks(text)) or path in exposed
    ]
    gone = [path for path in found if path not in wanted]
    if gone:
        missing = [
            *wanted
        ]  # each file has the list of folders, so none of them may have the only one
    folders = [dirname(path) for path in missing]
    absent = [
        folder
        for one in dict.fromkeys(folders)
        for folder in _missing_folders(one, node["registries"]["folders"])
    ]
    kept = {dirname(path) for path in wanted}
    plan.data["certificates"], plan.data["gone"] = missing, gone
    plan.data["folders"] = [*dict.fromkeys(absent)]
    plan.data["empty"] = [
        one for one in sorted(node["registries"]["created"], reverse=True) if _is_free(one, kept)
    ]
    left = {*node["registries"]["created"]} - {*plan.data["empty"]}
    plan.data["created"] = sorted({*left, *absent})
    readable = f"; others can read {', '.join(exposed)}" if exposed else ""
    reason = f"missing or different: {', '.join(missing)}{readable}"
    plan.step(CERTIFICATES, reason if missing else None)
    plan.step(REMOVE, f"no longer desired: {', '.join(gone)}" if gone else None)


def _missing_folders(folder: str, there: Mapping[str, list[str]]) -> list[str]:
    """Return the folders to create for a folder of certificates, the outermost first."""
    return [one for one in (*places.folders_above(folder), folder) if one not in there]


def _is_free(folder: str, kept: Iterable[str]) -> bool:
    return not any(one == folder or one.startswith(f"{folder}/") for one in kept)


def _of_role(node: Node) -> list[str]:
    return edited(node, places.ROLE)


def _found(node: Node, path: str) -> RegistryFile:
    return node["registries"]["files"].get(path, _ABSENT)


def _lacking(document: Document, found: RegistryFile) -> list[str]:
    """Return the keys that a file lacks, or has with other values."""
    values = {key_text(key): mark(value) for key, value in leaves(document.merge)}
    keys = [key for key, value in values.items() if found["values"].get(key) != value]
    for path, items in document.append:
        there = found["items"].get(key_text(path), [])
        if any(one not in there for one in marks(items)):
            keys.append(key_text(path))
    return keys


def _taken(document: Document, found: RegistryFile) -> list[str]:
    """Return the keys that the admin has with other values, or with tables in place of values."""
    wanted = dict(leaves(document.merge))
    values = {key_text(key): mark(value) for key, value in wanted.items()}
    taken = [
        key
        for key, value in values.items()
        if found["values"].get(key, value) != value and key not in found["ours"]
    ]
    paths = [*wanted, *(path for path, _items in document.append)]
    above = (key_text(path[:end]) for path in paths for end in range(1, len(path)))
    below = (f"{key_text(path)} > " for path in paths)
    taken += [key for key in above if key in found["values"]]
    taken += [key for start in below for key in found["values"] if key.startswith(start)]
    lists = (key_text(path) for path, _items in document.append)
    taken += [key for key in lists if key in found["values"] and key not in found["items"]]
    return [*dict.fromkeys(taken)]


def _stale(document: Document | None, found: RegistryFile) -> Iterable[str]:
    """Yield the keys that the role wrote, and that are no longer desired."""
    merge = {key_text(key) for key, _value in leaves(document.merge)} if document else set()
    append = {key_text(key): marks(items) for key, items in document.append} if document else {}
    for key in dict.fromkeys((*found["ours"], *found["our_items"])):
        if key in merge:
            continue
        if any(one not in append.get(key, ()) for one in found["our_items"].get(key, [""])):
            yield key


def _only(paths: Iterable[str], keys: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {path: keys.get(path, []) for path in paths}


def _places(keys: Mapping[str, list[str]]) -> str:
    """Return files with keys for people. Keys of hosts.toml have addresses, and no secrets."""
    return "; ".join(f"{path} ({', '.join(found)})" for path, found in keys.items() if found)


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
