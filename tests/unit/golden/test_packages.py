# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which modules run on a node of each system, and with which arguments, for the package operations.

The steps that bring packages are those of the plans for a virgin node, as the roles' tasks hand
them over. For the other operations, the packages of the container toolkit stand for all. To write
the texts anew: `python -m pytest tests/unit/golden --update-golden`
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from jinja2.nativetypes import NativeEnvironment

from ansible_collections.metal.gpu.plugins.modules.packages import ARGUMENT_SPEC
from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import (
    plan as plan_nvidia_container_runtime,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import (
    plan as plan_containerd,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import (
    plan as plan_docker_ce,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    known as known_drivers,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    plan as plan_nvidia_driver,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import operations, rehearsal
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import (
    Call,
    Request,
    bare_names,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import (
    DEBIAN,
    SUFFIXES,
    SYSTEMS,
    System,
)
from ansible_collections.metal.gpu.tests.unit.golden.documents import assert_text, file_name
from ansible_collections.metal.gpu.tests.unit.golden.nodes import (
    HOPPER,
    ROOT,
    node,
    variables,
    with_driver,
)

TEXTS = ROOT / "tests" / "unit" / "golden" / "packages"
MODULE = "metal.gpu.packages"
# What the user brings: what a system lacks, and what has no default.
FINGERPRINT = "as it was confirmed to you"
CRI_DOCKERD = {
    family: {
        "cri_dockerd_checksum": "sha256:yours",
        "cri_dockerd_url": f"https://yours.example/cri-dockerd{suffix}",
    }
    for family, suffix in SUFFIXES.items()
}


def plans(system: System) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield headings, the roles that bring packages, and their plans."""
    bare = node(system, engines.CONTAINERD, HOPPER, has_engine=False)
    docker = node(system, engines.DOCKER, HOPPER, has_engine=False)
    ready = with_driver(node(system, engines.CONTAINERD, HOPPER, has_engine=True))
    driver = {} if system.driver.fingerprint else {"repository_fingerprint": FINGERPRINT}
    own = "nvidia_driver, source distribution"
    for heading, planner, found, more in (
        ("nvidia_driver", plan_nvidia_driver, bare, driver),
        (own, plan_nvidia_driver, bare, {"source": "distribution"}),
        ("containerd", plan_containerd, bare, {}),
        ("docker_ce", plan_docker_ce, docker, CRI_DOCKERD[system.family]),
        (
            "nvidia_container_runtime",
            plan_nvidia_container_runtime,
            ready,
            {"engine": engines.CONTAINERD},
        ),
    ):
        role = heading.partition(",")[0]
        if heading != own or known_drivers.archives(system):
            yield heading, role, planner.plan(found, variables(role, **more))


def tasks(role: str, state: str) -> list[dict[str, Any]]:
    """Return the tasks of a role that run a package operation."""
    path = ROOT / "roles" / role / "tasks" / f"{state}.yml"
    return [task for task in yaml.safe_load(path.read_text()) if MODULE in task]


def rendered(value: Any, known: dict[str, Any]) -> Any:
    """Return a task's arguments as Ansible hands them over."""
    if isinstance(value, dict):
        return {name: rendered(item, known) for name, item in value.items()}
    if isinstance(value, str):
        return NativeEnvironment().from_string(value).render(known)
    return value


def validated(arguments: dict[str, Any]) -> dict[str, Any]:
    result = ArgumentSpecValidator(ARGUMENT_SPEC).validate(arguments)
    assert not result.error_messages
    return dict(result.validated_parameters)


def executed(
    system: System, arguments: dict[str, Any], *, fails: bool = False, **more: Any
) -> list[Call]:
    request = Request(validated(arguments), **more)
    request = request._replace(key=f"the key {request.repository.get('fingerprint')}")
    steps = operations.steps(arguments["operation"], system.family, request)
    return [*steps.undo] if fails else [*steps.first, *steps.work, *steps.last]


def sections(system: System) -> Iterator[tuple[str, list[tuple[str, list[Call]]]]]:
    """Yield headings, with what each step below it runs."""
    data: dict[str, Any] = {}
    for heading, role, plan in plans(system):
        data = plan["data"]
        planned = {step["slug"] for step in plan["steps"]}
        known = {f"{role}_plan": plan}
        known |= {f"{role}_{name}": value for name, value in CRI_DOCKERD[system.family].items()}
        known |= {f"__{role}_{steps}": planned for steps in ("steps", "steps_to_run")}
        known["omit"] = None
        carried_out = [
            (task["name"], executed(system, rendered(task[MODULE], known)))
            for task in tasks(role, "present")
            if slug(task) in planned
        ]
        refused = [(f"REFUSED {refusal['code']}", []) for refusal in plan["refusals"]]
        yield heading, refused or carried_out
    yield "other operations", [*others(system, data)]


def every_call(system: System) -> Iterator[Call]:
    for _heading, steps in sections(system):
        for _title, calls in steps:
            yield from calls


def slug(task: dict[str, Any]) -> str:
    """Return the step of a task: its condition is `'SLUG' in __ROLE_steps`, or `…_steps_to_run`."""
    return str(task["when"]).split("'")[1]


def others(system: System, data: dict[str, Any]) -> Iterator[tuple[str, list[Call]]]:
    names, bare = data["packages"], bare_names(data["packages"], system.family)
    repository, record = data["repository"], data["packages_record"]
    install = {"operation": "install", "names": names}
    change = {**install, "change_held": True, "may_remove": ["docker.io"]}
    add = {"operation": "repository", "repository": repository}
    cases: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("install, its index lacks a package", install, {"is_fresh": True}),
        (
            "install, packages that the role holds",
            change,
            {"held": bare},
        ),
        ("release", {"operation": "release", "names": bare}, {"held": bare}),
        (
            "remove",
            {"operation": "remove", "names": bare, "purge": True},
            {"held": bare},
        ),
        ("a new repository, after a failure", add, {"fails": True}),
        (
            "install, packages that the role holds, after a failure",
            change,
            {"held": bare, "fails": True},
        ),
        ("no_repository", {"operation": "no_repository", "repository": repository}, {}),
        ("forget", {"operation": "forget", "record": record}, {}),
    ]
    if system.family == DEBIAN:
        newest = {**install, "newest": True, "change_held": True}
        cases.append(("install, the newest versions of what the role holds", newest, {}))
        cases.append(("repair", {"operation": "repair"}, {}))
    request = Request(validated({**install, "repository": repository}))
    request = request._replace(key=f"the key {repository['fingerprint']}")
    yield "install, in check mode", [rehearsal.in_check_mode(request, system.family)]
    for title, arguments, more in cases:
        yield title, executed(system, arguments, **more)
    asked = operations.questions(system.family, names)
    yield "questions after a failure", [*asked.values()]


def golden(system: System) -> str:
    parts = [f"{system.name}, {system.level}. See docs/support.md for how to read this."]
    for heading, steps in sections(system):
        parts.append(f"\n== {heading} ".ljust(97, "="))
        for title, calls in steps:
            parts += [title, *lines(calls)]
    return "\n".join(parts) + "\n"


def lines(calls: list[Call]) -> Iterator[str]:
    for call in calls:
        yield f"    {call.module}"
        for name, value in call.options.items():
            style = None if isinstance(value, dict) else True  # on one line
            text = yaml.safe_dump(value, sort_keys=False, default_flow_style=style, width=1000)
            first, *more = text.removesuffix("\n...\n").splitlines()
            if isinstance(value, dict):
                yield f"        {name}:"
                yield from (f"            {line}" for line in (first, *more))
            else:
                yield f"        {name}: {first}"


@pytest.mark.parametrize("system", SYSTEMS, ids=file_name)
def test_what_runs_on_a_node(system: System, is_update: bool) -> None:
    assert_text(TEXTS, system, golden, is_update=is_update)


def test_every_text_has_its_system() -> None:
    assert {path.name for path in TEXTS.glob("*.txt")} == set(map(file_name, SYSTEMS))


def test_tasks_have_only_options_of_the_module() -> None:
    """Also those for a teardown, which no plan for a virgin node has."""
    files = [*ROOT.glob("roles/*/tasks/*.yml")]
    found = [task[MODULE] for path in files for task in tasks(path.parents[1].name, path.stem)]
    assert {one["operation"] for one in found} == set(ARGUMENT_SPEC["operation"]["choices"])
    assert [one for one in found if not set(one) <= set(ARGUMENT_SPEC)] == []
