# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say in lines what a plan would put on a node, in the order of its steps."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import (
    device_links,
    isolation,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import (
    packages as container_toolkit,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import (
    plan as containerd_plan,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio import (
    packages as crio_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio import (
    register_runtime as crio_runtime,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import (
    cri_dockerd,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import (
    packages as docker_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    steps as driver_steps,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import repositories
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import REDHAT
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Step

Lines = Iterator[str]
INDENT = "    "
VERSIONLOCK = "python3-dnf-plugin-versionlock"


def plan(made: Mapping[str, Any], family: str) -> str:
    """Return the refusals, or each step with what it writes, installs or holds."""
    lines: list[str] = []
    for refusal in made["refusals"]:
        lines.append(f"REFUSED {refusal['code']}")
        for text in (refusal["message"], f"Remedy: {refusal['remedy']}"):
            lines += textwrap.wrap(text, 96, initial_indent=INDENT, subsequent_indent=INDENT)
    for notice in made["notices"]:
        lines.append(f"NOTICE {notice['code']}")
    for step in made["steps"]:
        lines.append(step["name"])
        show = _SHOWN.get(Step(step["slug"], step["name"]))
        lines += (
            textwrap.indent("\n".join(show(made["data"], family)), INDENT).splitlines()
            if (show)
            else ()
        )
    return "\n".join(lines) + "\n"


def _prepare(data: Mapping[str, Any], family: str) -> Lines:
    yield "package python3-debian"


def _security(data: Mapping[str, Any], family: str) -> Lines:
    return _repository({"repository": data["security"]}, family)


def _repository(data: Mapping[str, Any], family: str) -> Lines:
    wanted = {name: value for name, value in data["repository"].items() if name != "new"}
    repository = repositories.Repository(**wanted)
    is_rpm = family == REDHAT
    yield f"file {repositories.FILES[family].format(repository.name)}"
    if is_rpm:
        yield f"{INDENT}[{repository.name}]"
    sign = " = " if is_rpm else ": "
    for field, value in repositories.fields(repository, is_rpm).items():
        if value and field.lower() != "enabled":  # the default, which is not written down
            yield f"{INDENT}{field}{sign}{value}"
    if repository.signed_by is not None:
        yield f"{INDENT}Signed-By: {repository.signed_by}"
        return
    yield f"key {repository.key}"
    yield f"{INDENT}fingerprint {repository.fingerprint}"
    yield f"{INDENT}in {repository.key_file or 'Signed-By of the file'}"


def _packages(key: str) -> Callable[[Mapping[str, Any], str], Lines]:
    return lambda data, family: (f"package {name}" for name in data[key])


def _following(data: Mapping[str, Any], family: str) -> Lines:
    best, *others = data["following"]
    yield f"package {best}"
    yield from (f"{INDENT}or {other}" for other in others)
    yield f"{INDENT}or none: no kernel is installed, and nothing removed"


def _hold(data: Mapping[str, Any], family: str) -> Lines:
    if family == REDHAT:
        yield f"package {VERSIONLOCK}"
    held_by = "dnf versionlock" if family == REDHAT else "apt-mark hold"
    yield from (f"{held_by} {name}" for name in (*data["hold"], *data.get("hold_alike", ())))


def _stream(data: Mapping[str, Any], family: str) -> Lines:
    yield f"dnf module enable nvidia-driver:{data['stream']}"


def _file(key: str) -> Callable[[Mapping[str, Any], str], Lines]:
    def show(data: Mapping[str, Any], family: str) -> Lines:
        yield f"file {data[key]['path']}"
        yield from (f"{INDENT}{line}" for line in data[key]["block"].splitlines())

    return show


def _persistence(data: Mapping[str, Any], family: str) -> Lines:
    if data["persistence_drop_in"]:
        yield from _file("persistence_drop_in")(data, family)


def _fabric_modules(data: Mapping[str, Any], family: str) -> Lines:
    if data["fabric_modules"]:
        yield f"command modprobe -a {' '.join(data['fabric_modules'])}"
    if data["fabric_modules_load"]:
        yield from _file("fabric_modules_load")(data, family)


def _ramdisk(data: Mapping[str, Any], family: str) -> Lines:
    yield f"command {' '.join(data['initramfs'])}"


def _keys(key: str) -> Callable[[Mapping[str, Any], str], Lines]:
    def show(data: Mapping[str, Any], family: str) -> Lines:
        edit = {name: value for name, value in data[key].items() if name != "path"}
        yield f"keys in {data[key]['path']}"
        text = yaml.safe_dump(edit, sort_keys=False)
        yield from (f"{INDENT}{line}" for line in text.splitlines())

    return show


def _low_level(data: Mapping[str, Any], family: str) -> Lines:
    yield f"keys in {data['crio_toolkit']}"
    yield from (f"{INDENT}runtime {path}" for path in data["crio_low_level"])


_SHOWN: dict[Step, Callable[[Mapping[str, Any], str], Lines]] = {
    driver_steps.SECURITY: _security,
    driver_steps.STREAM: _stream,
    driver_steps.BLACKLIST: _file("blacklist"),
    driver_steps.INITRAMFS: _ramdisk,
    driver_steps.PIN: _file("pin"),
    driver_steps.MODULES_LOAD: _file("modules_load"),
    driver_steps.HEADERS: _packages("headers"),
    driver_steps.DEVICE_RULE: _file("device_rule"),
    driver_steps.PERSISTENCE: _persistence,
    driver_steps.FOLLOW: _following,
    driver_steps.FABRIC_MODULES: _fabric_modules,
    containerd_plan.CRI: _keys("config"),
    cri_dockerd.INSTALL: lambda data, family: iter([f"package {data['cri_dockerd_url']}"]),
    device_links.RULE: _file("rule"),
    runtime.REGISTER: _keys("config"),
    crio_runtime.LOW_LEVEL: _low_level,
    crio_runtime.REGISTER: _keys("crio_config"),
    isolation.ISOLATE: _keys("settings"),
}
for _role in (
    *(driver_steps.OURS, containerd_plan.OURS, docker_packages.OURS, crio_packages.OURS),
    container_toolkit.OURS,
):
    _SHOWN |= {
        _role.python_debian: _prepare,
        _role.repository: _repository,
        _role.install: _packages("packages"),
        _role.hold: _hold,
    }
