# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does Docker use the proxy of the variable docker_ce_proxy?

The role writes a drop-in of its own, which names an environment file with the values. A file
http-proxy.conf is the admin's or another tool's: it is read, and never written. A setting that the
node has elsewhere stays there. A removal takes the values away first and the emptied environment
file last: until Docker has started without them, the time of that file shows that it has not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import options
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.packages import ROLE
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import fingerprint
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import NoData, Plan, Step

WRITE = Step("proxy", "Write the proxy of Docker")
RESTART = Step("restart_proxy", "Restart Docker with its proxy")
REMOVE = Step("remove_proxy", "Remove the proxy of Docker")

STEPS = (WRITE, RESTART, REMOVE)

_NAME = "docker_ce_proxy"
# Variables of Docker's environment, by key of the variable of the role, and the keys that have the
# same meaning in daemon.json, where they go before the environment.
_VARIABLES = {"http": "HTTP_PROXY", "https": "HTTPS_PROXY", "no_proxy": "NO_PROXY"}
_OF_FILE = {"http": "http-proxy", "https": "https-proxy", "no_proxy": "no-proxy"}
_PLAIN = re.compile(r"[^\s\"'\\]+")


def refuse_proxy(plan: Plan[NoData], node: Node, desired: Desired) -> None:
    """Refuse values that no drop-in can have, and a proxy that is set elsewhere, differently."""
    engine = node["engines"]["docker"]
    for key, value in desired["proxy"].items():
        # Messages never quote a value: it can have a password.
        if key not in _VARIABLES or not (isinstance(value, str) and _PLAIN.fullmatch(value)):
            plan.refuse(
                "VARIABLE_INVALID",
                name=_NAME,
                found=f"{key} with a value of its own",
                expected="the keys http, https and no_proxy, with texts without blanks and quotes",
                role=ROLE,
            )
            continue
        found = engine["proxy"].get(_VARIABLES[key])
        if found and not found["ours"] and found["sha256"] != _sha256(value):
            plan.refuse("DOCKER_PROXY_TAKEN", name=_VARIABLES[key], path=found["file"])
        in_file = engine["config"]["fingerprints"].get(f"proxies/{_OF_FILE[key]}")
        if in_file not in (None, fingerprint(value)):
            name, path = f"proxies.{_OF_FILE[key]}", engine["config"]["path"]
            plan.refuse("DOCKER_PROXY_TAKEN", name=name, path=path)


def plan_proxy(plan: Plan[Data], node: Node, desired: Desired, *, is_new: bool) -> None:
    """Plan the drop-in, and the restart with which Docker reads it.

    The plan of the options comes first: one restart is enough for both.
    """
    engine = node["engines"]["docker"]
    wanted = {
        _VARIABLES[key]: str(value)
        for key, value in desired["proxy"].items()
        if not _is_elsewhere(node, key)
    }
    ours = {name: found["sha256"] for name, found in engine["proxy"].items() if found["ours"]}
    _put(plan, node, wanted)
    if not wanted and not ours:
        _plan_left(plan, node, desired, is_new=is_new)
        return
    if ours == {name: _sha256(value) for name, value in wanted.items()}:
        _plan_unread(plan, node, desired, [*ours])
        return
    names = ", ".join(wanted) or "no proxy"
    if not is_new and engine["running"] and not desired["restart_ok"]:
        plan.notice("DOCKER_OPTIONS_WAIT", keys=", ".join(wanted or ours))
        return
    step = WRITE if wanted else REMOVE
    plan.step(step, f"{_NAME} has {names}")
    _plan_reload(plan, node, is_wanted=bool(wanted))
    if not is_new and engine["running"]:
        reason = "Docker reads it only when it starts; docker_ce_restart_ok is true"
        _plan_restart(plan, reason)


def _plan_unread(plan: Plan[Data], node: Node, desired: Desired, names: list[str]) -> None:
    """Plan the restart that an interrupted run has not done."""
    engine = node["engines"]["docker"]
    if not (engine["running"] and engine["unread"]["proxy"]):
        return
    if not desired["restart_ok"]:
        plan.notice("DOCKER_OPTIONS_WAIT", keys=", ".join(names))
        return
    _plan_restart(plan, "the proxy was written after Docker started")


def _plan_reload(plan: Plan[Data], node: Node, *, is_wanted: bool) -> None:
    """Have systemd read its units if the drop-in comes or goes. The values are in no unit."""
    if is_wanted != (own_files.DOCKER_PROXY in node["ours"]["files"]):
        plan.data |= {"proxy_reload": True, "daemon_reload": True}


def _plan_restart(plan: Plan[Data], reason: str) -> None:
    """Plan the restart, unless the options have one."""
    if plan.has_step(options.RESTART):
        plan.data["proxy_with_options"] = True
    else:
        plan.step(RESTART, reason)


def _plan_left(plan: Plan[Data], node: Node, desired: Desired, *, is_new: bool) -> None:
    """Plan the rest of a removal that was cut off. Its files have no values any more, or no use."""
    engine = node["engines"]["docker"]
    if not plan.data["proxy_files"]:
        return
    due = not is_new and engine["running"] and engine["unread"]["proxy"]
    if due and not desired["restart_ok"]:
        plan.notice("DOCKER_OPTIONS_WAIT", keys=_NAME)
        return
    plan.step(REMOVE, f"an earlier run left {', '.join(plan.data['proxy_files'])}")
    _plan_reload(plan, node, is_wanted=False)
    if due:
        _plan_restart(plan, "the proxy was removed after Docker started")


def reloading(plan: Plan[Data]) -> tuple[Step, ...]:
    """Return the steps of a plan that reload systemd for the proxy."""
    if not plan.data.get("proxy_reload"):
        return ()
    return (REMOVE, RESTART, *((options.RESTART,) if plan.data.get("proxy_with_options") else ()))


def plan_no_proxy(plan: Plan[Data], node: Node) -> None:
    """Plan the removal of the drop-in."""
    _put(plan, node, {})
    if plan.data["proxy_files"]:
        plan.step(REMOVE, "this role created the drop-in")
        _plan_reload(plan, node, is_wanted=False)


def _put(plan: Plan[Data], node: Node, wanted: Mapping[str, str]) -> None:
    """Pass the two files on, and which of them exist."""
    lines = [f"{name}={value}\n" for name, value in wanted.items()]
    unit = f"[Service]\nEnvironmentFile=-{own_files.DOCKER_PROXY_VALUES}\n"
    plan.data |= {
        "proxy_with_options": False,
        # An earlier run may have stopped between the drop-in and the reload.
        "proxy_reload": node["engines"]["docker"]["needs_reload"],
        "proxy": {"path": own_files.DOCKER_PROXY, "block": unit},
        "proxy_values": {"path": own_files.DOCKER_PROXY_VALUES, "block": "".join(lines)},
        "proxy_files": [one for one in own_files.OF_DOCKER_PROXY if one in node["ours"]["files"]],
    }


def _is_elsewhere(node: Node, key: str) -> bool:
    """Tell whether another file has the setting; `refuse_proxy` has compared the values."""
    engine = node["engines"]["docker"]
    found = engine["proxy"].get(_VARIABLES[key])
    is_set = found is not None and not found["ours"]
    return is_set or f"proxies/{_OF_FILE[key]}" in engine["config"]["fingerprints"]


def _sha256(value: object) -> str:
    return sha256(str(value).encode()).hexdigest()
