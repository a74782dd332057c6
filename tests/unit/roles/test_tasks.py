# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tasks of roles say, where no machine of ours can carry them out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Any

import jinja2
import pytest
import yaml
from ansible import template
from ansible.parsing.dataloader import DataLoader

from ansible_collections.metal.gpu.plugins.module_utils import findings

ROOT = Path(__file__).parents[3]


def tasks(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(path.read_text())
    return found


def with_nested(outer: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield tasks, and those of their blocks, with what they inherit from these."""
    for task in outer:
        yield task
        passed_on = {key: task[key] for key in ("run_once",) if key in task}
        for part in ("block", "rescue", "always"):
            yield from with_nested([{**passed_on, **one} for one in task.get(part, [])])


def test_no_content_gets_the_mode_of_a_temporary_file_on_the_controller() -> None:
    """Which is what `mode: preserve` means beside `content`: 0600."""
    copies = [
        (path, task["ansible.builtin.copy"])
        for path in ROOT.glob("roles/*/tasks/**/*.yml")
        for task in with_nested(tasks(path))
        if "content" in task.get("ansible.builtin.copy", {})
    ]
    assert copies
    assert [path for path, copy in copies if copy.get("mode") == "preserve"] == []


@pytest.mark.parametrize(("running", "drains"), [(True, True), (None, True), (False, False)])
def test_a_node_is_drained_unless_its_kubelet_is_stopped(
    running: bool | None, drains: bool
) -> None:
    """Before a reboot. None: systemd did not report its state."""
    environment = jinja2.Environment()
    environment.filters["bool"] = bool
    variables = yaml.safe_load((ROOT / "roles/nvidia_driver/vars/main.yml").read_text())
    template = environment.from_string(variables["__nvidia_driver_is_asked"])
    users = {"gpu_node": {"kubelet": {"running": running}}}
    rendered = template.render(nvidia_driver_reboot_drain=True, nvidia_driver_users=users)
    assert rendered == str(drains)


def test_no_host_looks_at_every_host() -> None:
    """For each host of 2,000, such a loop would print 2,000 lines."""
    looping = [
        task["name"]
        for path in [*ROOT.glob("roles/*/tasks/**/*.yml"), *ROOT.glob("playbooks/*.yml")]
        for play in tasks(path)
        for task in with_nested([play, *(play.get("tasks") or ()), *(play.get("post_tasks") or ())])
        if re.search(r"groups\[|ansible_play_(hosts|batch)", str(task.get("loop", "")))
        and not task.get("run_once")
    ]
    assert looping == []


@pytest.mark.parametrize(
    ("code", "printed", "is_ready"),
    [
        (0, "Completed\nCompleted\n", True),
        (0, "N/A\n", True),
        (2, 'Field "fabric.state" is not a valid field to query.\n', True),
        (0, "Completed\nIn Progress\n", False),
        (0, "Not Started\n", False),
        (0, "\n", False),
        (9, "", False),
        (9, "No devices were found\n", False),
        (124, "", False),
    ],
)
def test_the_fabric_is_ready_only_if_nvidia_smi_says_so(
    code: int, printed: str, is_ready: bool
) -> None:
    environment = jinja2.Environment()
    environment.tests["search"] = lambda text, pattern: bool(re.search(pattern, text))
    variables = yaml.safe_load((ROOT / "roles/nvidia_driver/vars/main.yml").read_text())
    template = environment.from_string(variables["__nvidia_driver_fabric_is_ready"])
    asked = {"rc": code, "stdout": printed, "stderr": ""}
    assert template.render(nvidia_driver_fabric=asked) == str(is_ready)
    nested = with_nested(tasks(ROOT / "roles/nvidia_driver/tasks/fabric.yml"))
    (wait,) = (task for task in nested if "until" in task)
    # Ansible asks no more after `retries`, and only this makes it a failure then.
    assert wait["failed_when"] == f"not {wait['until']}" == "not __nvidia_driver_fabric_is_ready"


@pytest.mark.parametrize(
    ("planned", "expected"),
    [(None, "nvidia/580.178.04"), ("nvidia-current/580.178.04", "nvidia-current/580.178.04")],
)
def test_what_dkms_builds_is_the_planned_version(planned: str | None, expected: str) -> None:
    environment = jinja2.Environment()
    environment.tests["match"] = lambda text, pattern: bool(re.match(pattern, text))
    variables = yaml.safe_load((ROOT / "roles/nvidia_driver/vars/main.yml").read_text())
    template = environment.from_string(variables["__nvidia_driver_source"])
    data = {"source": planned, "source_pattern": r"[^/]+/580\.178\.04$"}
    for left in ([], ["nvidia/535.309.01"]):
        dkms = {"sources": [*left, "nvidia/580.178.04"]}
        text = template.render(
            nvidia_driver_plan={"data": data},
            nvidia_driver_dkms={"gpu_node": {"driver": {"dkms": dkms}}},
        )
        assert text == expected


def test_what_the_pods_of_verify_ask_for() -> None:
    # From 2.19 on, ansible-core only renders what is marked as a template.
    trust = getattr(template, "trust_as_template", str)
    templar = template.Templar(loader=DataLoader())
    variables = yaml.safe_load((ROOT / "roles/verify/vars/main.yml").read_text())
    wanted = {
        "whole": ("nvidia.com/gpu", False),
        "sliced": ("nvidia.com/gpu", True),
        "mps": ("nvidia.com/gpu", True),
        "split": ("nvidia.com/mig-1g.10gb", True),
        "renamed": ("example.com/h100", False),
    }
    rows = {
        name: {"wanted": {"resource": resource, "shared": shared, "mps": name == "mps"}}
        for name, (resource, shared) in wanted.items()
    }
    questions = [{"node": "split", "split": 2}, {"node": "whole", "split": None}]
    templar.available_variables = {
        **{name: trust(text) for name, text in variables.items() if isinstance(text, str)},
        "verify_capacity": {"nodes": {**rows, "gone": {"wanted": None}}},
        "verify_fleet": {"questions": questions},
    }

    def render(name: str) -> object:
        return templar.template(trust("{{ " + name + " }}"))

    assert render("__verify_shared") == {
        "sliced": "nvidia.com/gpu",
        "mps": "nvidia.com/gpu",
        "split": "nvidia.com/mig-1g.10gb",
    }
    assert render("__verify_listed") == ["mps"]
    assert render("__verify_renamed") == {"renamed": "example.com/h100"}
    assert render("__verify_split") == {"split": 2, "whole": None}


@pytest.mark.parametrize(
    ("running", "started"),
    [
        pytest.param({}, ["old", "job", "service"], id="no exchange"),
        pytest.param(
            {"stdout_lines": ["service", "pod"]}, ["old", "service"], id="a job has ended"
        ),
    ],
)
def test_the_exchange_starts_only_what_it_has_stopped(
    running: dict[str, Any], started: list[str]
) -> None:
    trust = getattr(template, "trust_as_template", str)
    templar = template.Templar(loader=DataLoader())
    variables = DataLoader().load_from_file(str(ROOT / "roles/docker_ce/vars/main.yml"))
    own = {"merge": {"job": "of preflight", "service": "too"}}
    planned = {"containers": ["old", "job", "service"], "record": own}
    templar.available_variables = {
        **{
            name: trust(text) for name, text in variables.items() if name.endswith(("run", "start"))
        },
        "docker_ce_plan": {"data": planned},
        "docker_ce_running": running,
    }
    assert templar.template(trust("{{ __docker_ce_to_start }}")) == started
    names = [one["name"] for one in tasks(ROOT / "roles/docker_ce/tasks/present.yml")]
    asks = names.index("List the containers that the exchange is about to stop")
    assert names[asks + 1] == "Install Docker"


def test_no_proxy_is_asked_about_a_health_check_of_the_node() -> None:
    """Debian and Ubuntu give the proxy of /etc/environment to what sudo runs."""
    paths = (ROOT / "roles").glob("*/tasks/*.yml")
    asked = [
        one["ansible.builtin.uri"]
        for path in paths
        for one in with_nested(tasks(path))
        if "ansible.builtin.uri" in one
    ]
    assert [one["use_proxy"] for one in asked] == [False] * 2


MIRRORS = {"default_runtime": "runc", "runtimes": [], "mirrors": ["https://a.example"]}


@pytest.mark.parametrize(
    ("expected", "lines", "has_applied"),
    [
        pytest.param(
            {"default_runtime": "nvidia", "runtimes": ["nvidia"]},
            ["nvidia nvidia runc", "[]"],
            True,
            id="runtimes",
        ),
        pytest.param(
            {"default_runtime": "runc", "runtimes": ["nvidia"]},
            ["runc runc", "null"],
            False,
            id="other runtimes",
        ),
        pytest.param(
            MIRRORS,
            ["runc runc", '["https://b.example/","https://a.example/"]'],
            True,
            id="mirrors",
        ),
        pytest.param(MIRRORS, ["runc runc", "[]"], False, id="a reload that Docker has discarded"),
    ],
)
def test_docker_has_applied_a_change(
    expected: dict[str, Any], lines: list[str], has_applied: bool
) -> None:
    trust = getattr(template, "trust_as_template", str)
    templar = template.Templar(loader=DataLoader())
    text = (ROOT / "roles/docker_ce/vars/main.yml").read_text().replace("!unsafe", "")
    templar.available_variables = {
        **{
            name: trust(value)
            for name, value in yaml.safe_load(text).items()
            if name.startswith("__docker_ce_") and isinstance(value, str)
        },
        "docker_ce_expected": expected,
        "docker_ce_info": {"stdout_lines": lines},
    }
    assert templar.template(trust("{{ __docker_ce_has_applied }}")) is has_applied


def test_an_engine_is_called_by_the_path_that_was_observed() -> None:
    """The path of sudo lacks /usr/local/bin on Red Hat's systems, where Kubespray puts engines."""
    bare = re.compile(r"""\[(?:timeout, "10", )?["']?(?:containerd|dockerd|docker|kubelet)["']?,""")
    files = [*ROOT.glob("roles/*/tasks/**/*.yml"), *ROOT.glob("roles/*/vars/*.yml")]
    assert files
    assert [path for path in files if bare.search(path.read_text())] == []


@pytest.mark.parametrize(
    ("invalid", "plans"),
    [
        ({}, True),
        ({"gpu-1": {"kubelet_device_plugins_state": {}, "gpu_count": {}}}, True),
        ({"gpu-1": {}, "gpu-2": {"gpu_count": {}, "device_plugin_version": {}}}, False),
        ({"gpu-1": {"device_plugin_args": {}}}, False),
    ],
)
def test_no_device_plugin_is_planned_with_values_of_other_types(
    invalid: dict[str, Any], plans: bool
) -> None:
    """Its planner would end in an exception, and nobody would see the finding."""
    (task,) = (
        one
        for one in tasks(ROOT / "roles/preflight/tasks/cluster.yml")
        if one["name"] == "Plan the device plugin"
    )
    known = {
        "__preflight_deploys": True,
        "__preflight_answer": {"error": ""},
        "__preflight_can_query": True,
        "preflight_preconditions": {"invalid": invalid},
    }
    environment = jinja2.Environment()
    conditions = [environment.compile_expression(one) for one in task["when"]]
    assert all(one(**known) for one in conditions) is plans


@pytest.mark.parametrize(
    "name",
    [
        "preflight/tasks/cluster.yml",
        *(
            f"device_plugin/tasks/{one}.yml"
            for one in ("plan", "present", "deploy", "absent", "rollout")
        ),
    ],
)
def test_a_healthy_node_costs_nothing_in_tasks_on_the_cluster(name: str) -> None:
    """A task for each of 2,000 nodes takes minutes, also if it only includes others."""
    imported = ("ansible.builtin.import_tasks", "block")
    for task in with_nested(tasks(ROOT / "roles" / name)):
        if not any(key in task for key in imported):
            assert task.get("run_once") is True, task["name"]


def test_teardown_removes_what_every_role_that_it_calls_has_made() -> None:
    """Without its state, a role would install."""
    check, *plays = yaml.safe_load((ROOT / "playbooks" / "teardown.yml").read_text())[1:]
    called = {
        one["role"] if "role" in one else one["ansible.builtin.import_role"]["name"]
        for play in plays
        for one in (*play.get("roles", []), *play.get("tasks", []))
        if "role" in one or "ansible.builtin.import_role" in one
    }
    roles = {name.removeprefix("metal.gpu.") for name in called}
    assert {f"{role}_state" for role in roles - {"teardown"}} <= {
        name for name, value in check["vars"].items() if value == "absent"
    }
    assert {role for role in roles if f"'{role}'" not in check["vars"]["preflight_roles"]} == set()


def test_docker_hosts_are_checked_for_every_role_and_its_page_takes_each_back() -> None:
    _inventory, check, work, *_rest = yaml.safe_load(
        (ROOT / "playbooks" / "docker_hosts.yml").read_text()
    )
    called = {
        task["ansible.builtin.import_role"]["name"].removeprefix("metal.gpu.")
        for task in with_nested(work["tasks"])
        if "ansible.builtin.import_role" in task
    }
    assert {"preflight", *called, "verify"} == {*check["vars"]["preflight_roles"]}
    page = (ROOT / "docs" / "docker-hosts.md").read_text().partition("## Take it back")[2]
    (back,) = yaml.safe_load(page.split("```")[1].removeprefix("yaml\n"))
    assert {f"metal.gpu.{role}" for role in called} == {*back["roles"]}
    assert {name for name, value in back["vars"].items() if value == "absent"} == {
        f"{role}_state" for role in called
    }


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(
            ["unload", "remove", "headers", "runfile"],
            [
                "Fetch and check the .run file of the driver",
                "Ask whether what the .run file needs can be installed",
            ],
            id="packages to .run file",
        ),
        pytest.param(
            ["unload", "uninstall", "repository", "pin", "install"],
            ["Ask whether the driver can be installed instead of the .run file's"],
            id=".run file to packages",
        ),
        pytest.param(
            ["headers", "reboot", "runfile"],
            ["Fetch and check the .run file of the driver"],
            id="nouveau to .run file",
        ),
        pytest.param(["headers", "pin", "install"], [], id="packages"),
    ],
)
def test_no_driver_goes_before_the_new_one_is_known_to_exist(
    steps: list[str], expected: list[str]
) -> None:
    found = tasks(ROOT / "roles/nvidia_driver/tasks/present.yml")
    names = [task["name"] for task in found]
    before = found[: names.index("Remove the driver of another source")]
    environment = jinja2.Environment()
    variables = {"__nvidia_driver_steps_to_run": steps, "__nvidia_driver_steps": steps}
    operations = ("fetch_runfile", "install")
    assert [
        task["name"]
        for task in before
        if task.get("metal.gpu.packages", {}).get("operation") in operations
        and environment.compile_expression(task["when"])(**variables)
    ] == expected
    asks = [task for task in before if task["name"].startswith("Ask")]
    assert len(asks) == 2
    assert all(task["check_mode"] is True for task in asks)


@pytest.mark.parametrize(
    ("steps", "kernels", "expected"),
    [
        pytest.param(["build"], ["6.1"], True, id="a step of its own"),
        pytest.param(["install", "reboot"], ["5.14"], True, id="rpm ignores a failed build"),
        pytest.param(["install", "reboot"], [], False, id="dpkg does not"),
        pytest.param([], ["5.14"], False, id="check mode"),
    ],
)
def test_a_failed_build_is_seen_before_the_node_reboots(
    steps: list[str], kernels: list[str], expected: bool
) -> None:
    found = tasks(ROOT / "roles/nvidia_driver/tasks/present.yml")
    names = [task["name"] for task in found]
    at = names.index("Build the missing kernel modules")
    assert names.index("Install the driver") < at < names.index("Reboot the nodes one by one")
    variables = {
        "__nvidia_driver_steps_to_run": steps,
        "nvidia_driver_plan": {"data": {"kernels": kernels}},
    }
    environment = jinja2.Environment()
    assert environment.compile_expression(found[at]["when"])(**variables) is expected


def test_the_node_changes_only_after_apt_was_asked_with_the_pin() -> None:
    """A version that the repository no longer has must not cost the node its nouveau."""
    found = tasks(ROOT / "roles/nvidia_driver/tasks/present.yml")
    order = ["Ask whether the driver can be installed", "Pin the driver version"]
    order += ["Block the nouveau module", "Install the driver"]
    assert [one["name"] for one in found if one["name"] in order] == order
    (ask,) = (one for one in found if one["name"] == order[0])
    assert ask["check_mode"] is True
    assert "pin" in ask["metal.gpu.packages"]


@pytest.mark.parametrize(
    ("steps", "data", "expected"),
    [
        pytest.param(["install", "follow"], {"packages_record": "record"}, "none", id="packages"),
        pytest.param(["follow"], {"packages_record": "record"}, "record", id="only the headers"),
        pytest.param(["follow", "runfile"], {}, "none", id="a .run file has no record of packages"),
    ],
)
def test_the_record_of_what_follows_the_kernel(
    steps: list[str], data: dict[str, str], expected: str
) -> None:
    found = tasks(ROOT / "roles/nvidia_driver/tasks/present.yml")
    (task,) = (task for task in found if task["name"] == "Install what the next kernel needs")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    template = environment.from_string(task["metal.gpu.packages"]["record"])
    variables = {"__nvidia_driver_steps_to_run": steps, "nvidia_driver_plan": {"data": data}}
    assert template.render(omit="none", **variables) == expected


def test_findings_of_tasks_have_every_field() -> None:
    """A field without a value is an error of the task that should explain another error."""
    begin = r"'(?P<code>[A-Z_]+)'\s*\|\s*metal\.gpu\.finding\("
    calls = re.compile(begin + r"(?P<fields>.*?)\)\s*[\]|]", re.DOTALL)
    found = 0
    for path in [*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/*.yml")]:
        for call in calls.finditer(path.read_text()):
            meaning = findings.CATALOGUE[call["code"]]
            texts = Formatter().parse(meaning.message + meaning.remedy)
            names = {name for _text, name, *_rest in texts}
            given = {"host", *re.findall(r"(?:^|,)\s*(\w+)=(?!=)", call["fields"])}
            assert names - {None} <= given, (path, call["code"])
            found += 1
    assert found > 15


def test_a_play_gives_roles_only_parameters_that_they_have() -> None:
    """Ansible compares parameters of a role, but not its `vars`, with the argument spec."""
    for path in (ROOT / "playbooks").glob("*.yml"):
        for role in (one for play in tasks(path) for one in play.get("roles", ())):
            assert {*role} <= {"role", "vars", "tags", "when", "become", "delegate_to"}, path
