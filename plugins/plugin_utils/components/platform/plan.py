# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Can this machine become a GPU node, or stop being one? A plan without steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import Version
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import login_refusals
from ansible_collections.metal.gpu.plugins.module_utils.readable import MOST, some
from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact
from ansible_collections.metal.gpu.plugins.module_utils.verdict.machine import (
    judge_holders,
    judge_kind,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.silence import silent_programs
from ansible_collections.metal.gpu.plugins.plugin_utils import variables
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines, rivals
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import NoData, Plan, PlanResult

# Either Ansible reports that the user cannot become root and names the method, or the program
# reports it. A program can also warn and continue: then something else failed. su prints its
# password prompt on the same line.
# Source: ansible-core, plugins/connection/{ssh,local}.py and plugins/action/__init__.py, 2.16 to
# 2.21; community.general 13.5.0, plugins/become/; su of util-linux 2.38.1, run without a terminal;
# for the warnings, sudo-project/sudo#42, NVIDIA/dgx-selinux#5, ansible/ansible#468.
_REFUSED = re.compile(
    r"(?:Missing|Incorrect) (?P<method>[\w.-]+) password"
    r"|.*waiting for (?:privilege escalation|become success).*"
    r"|^Authentication failure\.$"
    r"|.*(?:not in the sudoers file|may not run sudo|not allowed to execute).*"
    r"|==== AUTHENTICATION FAILED ====.*"
    r"|\b(?P<program>sudo|sudo-rs|su|doas|dzdo|ksu|machinectl|run0): "
    r"(?!warning: |setrlimit|unable to resolve host|unable to send audit message).+"
)
_ARM64 = ("aarch64", "arm64")
_WRAPPING = "Task failed: "
_NAME_PYTHON = "; name the node's Python with ansible_python_interpreter in the inventory"
# Ansible also calls a host unreachable when SSH works but nothing can be written.
_REACHED = ("Failed to create temporary directory", "No space left on device")
_WHERE = {"doas": " (`permit nopass` in /etc/doas.conf)"}


def plan(node: Node, desired: Desired) -> PlanResult:
    """Judge the machine.

    With state absent, neither a missing card nor a missing kubelet is refused.
    """
    plan = Plan[Data](desired["host"], {})
    refuse_platform(plan, node)
    if any(judge_kind(plan.host, node)):
        return plan.result()
    kubelet = node["kubelet"]
    if desired["state"] == "present":
        _refuse_gpus(plan, node, desired)
        rivals.refuse_cloud_image(plan, node)
        if engines.refuse_distribution(plan, node):
            return plan.result()
        engines.refuse_stopped_distribution(plan, node)
        engines.refuse(plan, node, desired["engine"])
        if not kubelet["installed"] and not desired["kubelet"]:
            return plan.result()
        if not kubelet["installed"]:
            engines.refuse_missing_kubelet(plan, node)
            return plan.result()
        joined, own = kubelet["joined_name"], kubelet["own_name"]
        if joined and own and joined != own:
            plan.refuse("NODE_RENAMED", joined=joined, own=own)
        rivals.notice_second_engine(plan, node, engines.choose(node, desired["engine"]))
    plan.data["node_name"] = kubelet["node_name"]
    return plan.result()


def _refuse_gpus(plan: Plan[NoData], node: Node, desired: Desired) -> None:
    addresses = [gpu["address"] for gpu in node["pci"]]
    if not addresses:
        plan.refuse("NO_GPU")
    declared, wrong = variables.gpu_count(plan.host, desired["gpu_count"])
    plan.refusals += wrong
    if addresses and declared is not None and declared != len(addresses):
        plan.refuse(
            "GPU_COUNT_DIFFERS",
            declared=declared,
            found=len(addresses),
            addresses=", ".join(addresses),
        )
    plan.refusals += judge_holders(plan.host, node)


def refuse_platform(plan: Plan[NoData], node: Node) -> None:
    """Refuse an unsupported system, and a node whose packages or units are unknown.

    Every plan that installs packages calls this.
    """
    system = node["os"]
    if systems.find(system) and system["architecture"] in _ARM64:
        plan.refuse("ARM64_UNSUPPORTED", evidence=f"{system['name']} on {system['architecture']}")
    elif systems.find(system) is None or system["architecture"] != systems.ARCHITECTURE:
        name = system["name"] or system["id"] or "an unknown system"
        plan.refuse(
            "OS_UNSUPPORTED",
            found=f"{name} on {system['architecture']}",
            expected=", ".join(supported.name for supported in systems.SYSTEMS),
        )
    if node["init"] != "systemd":
        plan.refuse("INIT_UNSUPPORTED")
    plan.refusals += judge_kind(plan.host, node)
    if node["read_only"]:
        plan.refuse("FILES_READ_ONLY", paths=" and ".join(node["read_only"]))
    for code, evidence in silent_programs(node):
        plan.refuse(code, **evidence)


def known_version(plan: Plan[NoData], program: str, found: Version) -> str | None:
    """Return the version of a program, or refuse: the rest of the plan depends on it."""
    if found["version"] is None:
        plan.refuse("VERSION_UNKNOWN", program=program, error=found["version_error"])
    return found["version"]


def why_unobserved(host: str, result: Mapping[str, object], method: str = "") -> dict[str, str]:
    """Return the finding for a host whose observation failed.

    `method` is how the user becomes root, if the inventory sets it.
    """
    error = str(result.get("msg", "")).removeprefix(_WRAPPING).strip()
    if result.get("failures"):
        return finding("OBSERVATION_FAILED", host, error=error)
    printed = [str(result.get(name, "")) for name in ("module_stderr", "module_stdout")]
    said = "\n".join((error, *printed))
    refusal = login_refusals.find(said)
    if refusal:
        return finding(refusal.code, host, error=refusal.words)
    for line in said.splitlines():
        refused = _REFUSED.search(line.strip())
        if refused:
            named = refused["method"] or refused["program"] or method or "sudo"
            return _not_root(host, named.rpartition(".")[2], refused[0])
    if result.get("unreachable") and not error.startswith(_REACHED):
        return finding("NODE_UNREACHABLE", host, error=redact(error))
    lines = printed[0].strip().split("\n")
    # Of a traceback, the last line says why; a shim of Python has its reason in the first one.
    line = lines[0] if "command not found" in lines[0] else lines[-1]
    said = f"{error}: {line}" if line else error
    said += _NAME_PYTHON if "command not found" in line else ""
    return finding("NODE_NOT_OBSERVED", host, error=redact(said))


def _not_root(host: str, method: str, words: str) -> dict[str, str]:
    error = redact(words)
    if method in ("sudo", "sudo-rs"):
        return finding("SUDO_REFUSED", host, error=error)
    whose = "root's" if method == "su" else "the user's"
    where = _WHERE.get(method, "")
    return finding("BECOME_REFUSED", host, method=method, whose=whose, where=where, error=error)


def name_clashes(node_names: Mapping[str, str]) -> list[dict[str, str]]:
    """Return a refusal for each host that shares its Kubernetes node with another host.

    `node_names` has the node name of each inventory host.
    """
    hosts: dict[str, list[str]] = {}
    for host, node in node_names.items():
        hosts.setdefault(node, []).append(host)
    return [
        finding("NODE_NAME_TWICE", host, node=node, hosts=_hosts(host, same))
        for node, same in hosts.items()
        if len(same) > 1
        for host in same
    ]


def _hosts(host: str, same: Iterable[str]) -> str:
    first, *others, last = names = ["this host", *(other for other in same if other != host)]
    return some(names) if len(names) > MOST else f"{', '.join([first, *others])} and {last}"
