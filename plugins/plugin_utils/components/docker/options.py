# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which options of the variable docker_ce_daemon_options does daemon.json lack?

Only the keys of the variable are written, and each can be undone. docs/decisions/047 has the rules.

Source: tests/recorded/docker_daemon.yml
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import Docker
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read.docker import DEFAULT_RUNTIME
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import data, settings
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.packages import (
    PACKAGE,
    ROLE,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.unread import RELOADABLE
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.values import (
    Key,
    key_text,
    leaves,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import fingerprint
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    Edit,
    NoData,
    Plan,
    Step,
    actor,
    edited,
    refuse_conflict,
    refuse_uneditable,
)

WRITE = Step("options", "Write the options of Docker")
RELOAD = Step("reload", "Reload Docker")
RESTART = Step("restart", "Restart Docker")
RESTORE = Step("restore_options", "Restore the options of Docker")

STEPS = (WRITE, RELOAD, RESTART, RESTORE)

_NAME = "docker_ce_daemon_options"
# Keys that the role nvidia_container_runtime sets, with the variable that decides.
_OTHERS = {
    ("default-runtime",): "nvidia_container_runtime_default",
    ("runtimes", "nvidia"): "nvidia_container_runtime_state",
    ("features", "cdi"): "nvidia_container_runtime_cdi",
}


class _Changes(NamedTuple):
    """What to write, and what to put back that the role has written before."""

    merge: dict[Key, object]
    remove: list[Key]

    @property
    def keys(self) -> list[Key]:
        return [*self.merge, *self.remove]


class _Unread(NamedTuple):
    """What an interrupted run has written, and Docker has not read."""

    keys: tuple[Key, ...] = ()
    removed: tuple[Key, ...] = ()


def refuse_options(plan: Plan[NoData], node: Node, desired: Desired) -> None:
    """Refuse options that belong to another variable, or of which the admin has other values."""
    wanted = dict(leaves(desired["daemon_options"]))
    config = node["engines"]["docker"]["config"]
    for key in wanted:
        owner = next((name for path, name in _OTHERS.items() if key[: len(path)] == path), None)
        if owner:
            plan.refuse(
                "VARIABLE_INVALID",
                name=_NAME,
                found=f"{_text(key)}, which {owner} decides",
                expected="other keys of daemon.json",
                role=ROLE,
            )
    ours, changes = _ours(node), _changes(node, wanted)
    moves = data.moves(node["engines"]["docker"], changes.merge, changes.remove)
    if moves:
        plan.refuse("DOCKER_DATA_MOVES", keys=", ".join(moves.values()))
    taken = [
        _text(key)
        for key in wanted
        if key not in {*ours, *moves} and _differs(config["fingerprints"], key, wanted[key])
    ]
    if taken:
        plan.refuse("DOCKER_OPTION_TAKEN", path=config["path"], keys=", ".join(taken))
    if wanted and any(key not in _same(node, wanted) for key in wanted):
        refuse_uneditable(plan, config["path"], config["obstacle"])
        if not plan.refusals:
            edit: Edit = {"path": config["path"], "merge": _table(wanted)}
            refuse_conflict(plan, config["outline"], edit)


def plan_options(
    plan: Plan[Data], node: Node, desired: Desired, *, version: str | None, is_new: bool
) -> None:
    """Plan to write what daemon.json lacks, and to let Docker apply it.

    `is_new`: this run installs Docker, which reads the file at its first start. `version` is that
    of the Docker that then runs; None: unknown.
    """
    engine = node["engines"]["docker"]
    # A distribution's program is gone after its replacement.
    is_same = version == engine["version"]
    program = (engine["path"] if is_same else settings.PROGRAM) or "dockerd"
    changes = _changes(node, dict(leaves(desired["daemon_options"])))
    starts = is_new or not engine["running"]
    unread = _Unread() if starts or not is_same else _unread(engine)
    plan.data |= {"options_first": starts, "options_program": None, "options_unread": False}
    checks = version is not None and settings.validates(version)
    # What this run sets again, a reload applies, whatever was removed before.
    removed = {*changes.remove, *unread.removed} - {*changes.merge}
    waiting = [
        key
        for key in dict.fromkeys((*changes.keys, *unread.keys))
        if not checks or key in removed or key[0] not in RELOADABLE
    ]
    if waiting and not starts and not desired["restart_ok"]:
        if {*waiting} & {*unread.keys}:
            # The history has only the last edit. Another one would hide that a restart is due.
            waiting = [*dict.fromkeys((*waiting, *changes.keys))]
        plan.notice("DOCKER_OPTIONS_WAIT", keys=", ".join(map(_text, waiting)))
        changes = _Changes(
            {key: value for key, value in changes.merge.items() if key not in waiting}, []
        )
        unread = _Unread(tuple(key for key in unread.keys if key not in waiting))
        waiting = []
    if not changes.keys and not unread.keys:
        return
    plan.data |= {
        "options_unread": bool(unread.keys),
        "options": {
            "path": engine["config"]["path"],
            "remove": [list(key) for key in changes.remove],
            "merge": _table(changes.merge),
        },
        "options_program": program if checks and not is_new else None,
        "expected": {
            "default_runtime": engine["default_runtime"] or DEFAULT_RUNTIME,
            "runtimes": [],
        },
    }
    if changes.keys:
        plan.step(
            WRITE,
            f"daemon.json lacks {', '.join(map(_text, changes.keys))}"
            if changes.merge
            else f"no longer desired: {', '.join(map(_text, changes.remove))}",
        )
    if starts:
        return
    late = f"an interrupted run has changed {', '.join(map(_text, unread.keys))}; "
    step, reason = (
        (RESTART, "Docker reads these options only at its start; docker_ce_restart_ok is true")
        if waiting
        else (RELOAD, "Docker applies these options without a restart; containers keep running")
    )
    plan.step(step, f"{late if unread.keys else ''}{reason}")


def plan_no_options(plan: Plan[Data], node: Node) -> None:
    """Plan to put back what the role has written into daemon.json."""
    paths = _edited(node)
    plan.data["option_edits"] = paths
    plan.step(RESTORE, f"this role changed {', '.join(paths)}" if paths else None)
    ours = _ours(node)
    if ours and PACKAGE not in plan.data["packages"] and node["engines"]["docker"]["running"]:
        plan.notice("DOCKER_OPTIONS_OLD", keys=", ".join(map(_text, ours)))


def _edited(node: Node) -> list[str]:
    path = node["engines"]["docker"]["config"]["path"]
    return [one for one in edited(node, ROLE) if one == path]


def _ours(node: Node) -> dict[Key, object]:
    """Return what the role has written: the former values by key; None: the key is new.

    A value that somebody else has changed since, or removed, is no longer the role's.
    """
    config = node["engines"]["docker"]["config"]
    return {
        key: change["before"]
        for edit in node["ours"]["edits"]
        if edit["actor"] == actor(ROLE) and edit["path"] == config["path"]
        for change in edit["changes"]
        if (key := tuple(change["key"]))
        and config["fingerprints"].get(key_text(key)) == change["after"]
    }


def _changes(node: Node, wanted: Mapping[Key, object]) -> _Changes:
    same, ours = _same(node, wanted), _ours(node)
    merge = {key: value for key, value in wanted.items() if key not in same}
    past = {key: before for key, before in ours.items() if key not in wanted}
    merge |= {key: before for key, before in past.items() if before is not None}
    return _Changes(merge, [key for key, before in past.items() if before is None])


def _unread(engine: Docker) -> _Unread:
    found = engine["unread"]
    removed = tuple(map(tuple, found["removed"]))
    return _Unread((*map(tuple, found["set"]), *removed), removed)


def _same(node: Node, wanted: Mapping[Key, object]) -> set[Key]:
    """Return the keys that daemon.json has with the desired value."""
    values = node["engines"]["docker"]["config"]["fingerprints"]
    return {key for key, value in wanted.items() if values.get(key_text(key)) == fingerprint(value)}


def _differs(values: Mapping[str, str], key: Key, value: object) -> bool:
    """Tell whether daemon.json has another value at a key, or where a table has to be."""
    found = values.get(key_text(key))
    if found is not None:
        return found != fingerprint(value)
    is_table = any(name.startswith(f"{key_text(key)}/") for name in values)
    above = (values.get(key_text(key[:end])) for end in range(1, len(key)))
    in_value = any(found not in (None, fingerprint({})) for found in above)
    return is_table or in_value


def _text(key: Key) -> str:
    return ".".join(key)


def _table(flat: Mapping[Key, object]) -> dict[str, object]:
    table: dict[str, object] = {}
    for key, value in flat.items():
        settings.put(table, key, value)
    return table
