# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Do on a planted node what tasks of the roles do, with the data of a plan.

Those of the role registries, and of nvidia_container_runtime what changes files of an engine.

Edits go through the code of metal.gpu.config_document, with the history in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.read import document_history_files
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries import content
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import edit, history

ACTOR = "metal.gpu.registries"
RUNTIME_ACTOR = "metal.gpu.nvidia_container_runtime"
MARK = "# {} managed by Ansible, role metal.gpu.registries"


def on_disk(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def write(root: Path, path: str, text: str, mode: int = 0o644) -> None:
    file = on_disk(root, path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


def carry_out(root: Path, plan: Mapping[str, Any], hosts: list[Any]) -> None:
    """Carry out a plan of the role."""
    data = plan["data"]
    for folder in data["folders"]:
        on_disk(root, folder).mkdir(parents=True, exist_ok=True)
    for path in data["certificates"]:
        block = content.certificate(hosts, data["target"], path, data["created"])
        mode = 0o600 if path.endswith(".key") else 0o644
        write(root, path, f"{MARK.format('BEGIN')}\n{block}{MARK.format('END')}\n", mode)
    for path in data["restore"]:
        undo(root, path)
    for path in (*data["settings"], *data["logins"]):
        arguments = content.document(hosts, data["target"], path)
        merge(root, arguments, replace=path in data["replace"])
    if data["config"]:
        merge(root, {"language": "toml", "append": [], "mode": "0644", **data["config"]})
    for path in data["gone"]:
        remove_block(root, path)
    for folder in data["empty"]:
        if on_disk(root, folder).exists() and not [*on_disk(root, folder).iterdir()]:
            on_disk(root, folder).rmdir()


def carry_out_runtime(root: Path, plan: Mapping[str, Any]) -> None:
    """Carry out a plan of nvidia_container_runtime, as far as it is about containerd or Docker."""
    steps, data = {step["slug"] for step in plan["steps"]}, plan["data"]
    own = {"append": [], "mode": "0644"}
    for slug, name in (("register", "config"), ("disuse", "way_back")):
        if slug in steps:
            language = edit.language_of(data[name]["path"])
            merge(root, {**own, **data[name], "language": language}, actor=RUNTIME_ACTOR)
    for slug, name in (("unregister", "containerd_edits"), ("unregister_docker", "docker_edits")):
        for path in data[name] if slug in steps else ():
            undo(root, path, actor=RUNTIME_ACTOR)


def merge(
    root: Path, arguments: Mapping[str, Any], *, replace: bool = False, actor: str = ACTOR
) -> None:
    file = on_disk(root, arguments["path"]).resolve()
    before = file.read_bytes().decode() if file.exists() else None
    lists = tuple(edit.ListEdit(tuple(one["path"]), one["items"]) for one in arguments["append"])
    remove = tuple(map(tuple, arguments.get("remove", ())))
    edits = edit.Edits(merge=arguments["merge"], append=lists, remove=remove)
    stored = _history(root, arguments["path"], actor)
    former = history.recall(stored.read_text() if stored.exists() else None, before)
    base = history.restore(before, arguments["language"], former) if replace else before
    after = history.change(base, arguments["language"], edits)
    assert after is not None
    missing = [f"/{one.relative_to(root)}" for one in reversed(file.parents) if not one.exists()]
    new = history.extend(former, before, arguments["language"], written=after, created=missing)
    mode = file.stat().st_mode if file.exists() else int(arguments["mode"], 8)
    write(root, f"/{file.relative_to(root)}", after, mode & 0o777)
    stored.parent.mkdir(parents=True, exist_ok=True)
    stored.write_text(history.remember(new))


def remove_block(root: Path, path: str) -> None:
    """Remove the block of the role, and the file if it has nothing else, as no_block.yml does."""
    file = on_disk(root, path)
    before, _start, rest = file.read_text().partition(f"{MARK.format('BEGIN')}\n")
    left = before + rest.partition(f"{MARK.format('END')}\n")[2]
    if left:
        file.write_text(left)
    else:
        file.unlink()


def undo(root: Path, path: str, *, actor: str = ACTOR) -> None:
    file, stored = on_disk(root, path).resolve(), _history(root, path, actor)
    found = history.recall(stored.read_text(), file.read_text())
    assert found is not None
    assert found.language is not None
    after = history.restore(file.read_text(), found.language, found)
    if after is None:
        file.unlink()
        for folder in reversed(found.directories):
            if not [*on_disk(root, folder).iterdir()]:
                on_disk(root, folder).rmdir()
    else:
        file.write_text(after)
    stored.unlink()


def _history(root: Path, path: str, actor: str) -> Path:
    """Return the history of a file, which is named after its real path."""
    real = on_disk(root, path).resolve().relative_to(root)
    name = document_history_files.file_name(f"/{real}", actor)
    return on_disk(root, document_history_files.DIRECTORY) / name
