# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The login of a repository of dnf: in options, compared, and never shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils import module_runner
from ansible_collections.metal.gpu.plugins.plugin_utils.components.planning import PLANNERS
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import login, rehearsal
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import Call, Request
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.operations import steps
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
    ObservedRepository,
    is_ours,
    repository_reason,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import SYSTEMS, System
from ansible_collections.metal.gpu.tests.unit.golden import nodes
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.packages.test_repositories import (  # noqa: E501
    NOW,
    RPM,
    rpm_node,
)

FACTS = {
    row["what"]: row["value"]
    for row in yaml.safe_load(
        (Path(__file__).parents[4] / "recorded" / "mirror_programs.yml").read_text()
    )["facts"]
}
PLACE = "mirror.example/rhel9/x86_64/"
ESCAPED, PASSWORD = "CANARY%40%3A%2F%25%23", "CANARY@:/%#"
SECRET = RPM._replace(url=f"https://me:{ESCAPED}@{PLACE}")
OPTIONS = {"baseurl": f"https://{PLACE}", "username": "me", "password": PASSWORD}


@pytest.mark.parametrize(
    ("url", "options"),
    [
        pytest.param(RPM.url, {"baseurl": RPM.url}, id="none"),
        pytest.param(SECRET.url, OPTIONS, id="special characters"),
        pytest.param(
            f"https://a%40b.example:{ESCAPED}@{PLACE}",
            {**OPTIONS, "username": "a@b.example"},
            id="special characters of the user",
        ),
        pytest.param(
            f"https://token@{PLACE}",
            {**OPTIONS, "username": "token", "password": ""},
            id="without a password",
        ),
        pytest.param(
            "http://me:a+b=c@mirror.example:8080/el$releasever/$basearch?x=a@b",
            {
                "baseurl": "http://mirror.example:8080/el$releasever/$basearch?x=a@b",
                "username": "me",
                "password": "a+b=c",
            },
            id="variables",
        ),
        pytest.param("http://me:x@[::1]:80/a@b", {"baseurl": "http://[::1]:80/a@b"}, id="IPv6"),
        pytest.param("https://@h.example/", {"baseurl": "https://h.example/"}, id="empty"),
        pytest.param("file:///srv/a@b", {"baseurl": "file:///srv/a@b"}, id="file"),
    ],
)
def test_login_is_split_off(url: str, options: dict[str, str]) -> None:
    assert FACTS["username and password in a .repo file"] == "as they are: curl decodes no %XX"
    found = login.of_address(url)
    assert found == ({**found, **options} if "[::1]" in url else options)
    assert found["baseurl"] == options["baseurl"]
    assert login.problem(url) is None


@pytest.mark.parametrize(
    "userinfo",
    [
        "me:CANARY%5C",
        "me:CANARY%24arch",
        "me:CANARY$%7Bx%7D",
        "$releasever:CANARY",
        "me:CANARY%20",
        "me:%20CANARY",
        "me:CANARY%0Agpgcheck=0",
        "me:CANARY%C3%A9",
        "me:CANARY%FF",
        "me:CANARYé",
        "None:CANARY",
        ":CANARY",
    ],
)
def test_login_that_dnf_would_change_is_refused(userinfo: str) -> None:
    problem = login.problem(f"https://{userinfo}@{PLACE}")
    assert problem is not None
    assert "CANARY" not in problem


@pytest.mark.parametrize("userinfo", ["me:a%20b", "me:$", "me:a$.b", "me:100%", "me:nOne", "me:"])
def test_login_that_only_looks_special(userinfo: str) -> None:
    assert login.problem(f"https://{userinfo}@{PLACE}") is None


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_only_dnf_has_options(system: System) -> None:
    """apt reads the address, so it takes every password."""
    node = nodes.node(system, "containerd", nodes.CARDS[0], has_engine=True)
    url = f"https://me:CANARY%5C@{PLACE}"
    desired = nodes.variables(
        "nvidia_container_runtime", engine="containerd", repository_url=url, repository_key="k.asc"
    )
    made = PLANNERS["nvidia_container_runtime"](node, desired)
    expected = ["URL_INVALID"] if system.family == "redhat" else []
    assert [one["code"] for one in made["refusals"]] == expected
    assert "CANARY" not in str([made["refusals"], made["steps"], made["notices"]])


def test_login_that_dnf_would_change_does_no_harm_where_no_file_is_written() -> None:
    """The admin has a file of the same address."""
    system = next(one for one in SYSTEMS if one.family == "redhat")
    node = nodes.node(system, "containerd", nodes.CARDS[0], has_engine=True)
    source = {
        **{"path": "/etc/yum.repos.d/mine.repo", "section": "mine", "url": f"https://{PLACE}"},
        **{"suite": "", "unsigned": "", "credentials": True},
    }
    node["package_sources"] = [source]
    url = f"https://me:CANARY%5C@{PLACE}"
    desired = nodes.variables(
        "nvidia_container_runtime", engine="containerd", repository_url=url, repository_key="k.asc"
    )
    made = PLANNERS["nvidia_container_runtime"](node, desired)
    assert "URL_INVALID" not in [one["code"] for one in made["refusals"]]


# --- what is written ------------------------------------------------------------------------------


def calls(operation: str = "repository", **changes: Any) -> tuple[Call, ...]:
    repository = {**SECRET._asdict(), "new": True, **changes}
    return steps(operation, "redhat", Request({"repository": repository}, key="the key")).work


def written() -> Call:
    (call,) = (one for one in calls() if one.module == "ansible.builtin.yum_repository")
    return call


def test_password_is_in_no_address_and_in_no_command() -> None:
    assert written().options | OPTIONS == written().options
    others = [call for call in calls() if call != written()]
    assert "CANARY" not in str(others)


def test_node_does_not_log_what_has_the_password() -> None:
    assert written().is_logged is False
    repository = {**SECRET._asdict(), "new": True}
    (apt, *_) = steps("repository", "debian", Request({"repository": repository})).work
    assert apt.is_logged is False


@pytest.mark.parametrize("password", ["#CANARY", ";CANARY", '"a"CANARY', "[a]CANARY", "no#CANARY"])
def test_password_is_in_no_diff(password: str) -> None:
    """Of a password that changes or goes, Ansible itself hides only the new one."""
    before = f'[x]\npassword = {password}\nusername = "CANARY\n'
    found = module_runner._without_logins({"before": before, "after": "", "before_header": "x"})
    hidden = "[x]\npassword = ***\nusername = ***\n"
    assert found == {"before": hidden, "after": "", "before_header": "x"}


def test_file_is_roots_alone_before_the_password_is_in_it() -> None:
    path = "/etc/yum.repos.d/metal-gpu-cuda.repo"
    found = [call for call in calls() if call.options.get("path") == path]
    assert [(one.options["state"], one.options["mode"]) for one in found] == [("touch", "0600")]
    assert calls().index(found[0]) == calls().index(written()) - 1
    assert written().options["mode"] == "0600"
    open_to_all = calls(url=RPM.url)
    assert [one for one in open_to_all if one.options.get("path") == path] == []


def test_rehearsal_logs_in() -> None:
    options = {
        **{"operation": "install", "names": ["x"], "stream": None, "change_held": False},
        **{"may_remove": [], "earlier": [], "repository": {**SECRET._asdict(), "new": True}},
    }
    call = rehearsal.in_check_mode(Request(options, key="the key"), "redhat")
    question = call.options["_rehearse"]
    text = question["files"]["repos/metal-gpu-cuda.repo"]
    assert {f"{name}={value}" for name, value in OPTIONS.items()} <= set(text.splitlines())
    assert f"password={PASSWORD}" in text.splitlines()
    del question["files"]
    assert "CANARY" not in str(question)
    assert call.is_logged is False


@pytest.mark.parametrize("url", [SECRET.url, f"https://token@{PLACE}"])
def test_what_the_module_writes_is_as_desired(url: str, tmp_path: Path) -> None:
    """The module of the installed ansible-core, twice: the second run changes nothing."""
    (call,) = (one for one in calls(url=url) if "baseurl" in one.options)
    options = {**call.options, "reposdir": str(tmp_path)}
    python = f"ansible_python_interpreter={sys.executable}"
    command = [
        *(sys.executable, "-m", "ansible", "adhoc", "-i", "localhost,", "-c", "local", "all"),
        *("-e", python, "-m", call.module, "-a", json.dumps(options)),
    ]
    environment = {**os.environ, "ANSIBLE_HOME": str(tmp_path / "home"), "ANSIBLE_NOCOLOR": "1"}
    outputs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        for _run in range(2)
    ]
    assert [output.split()[2] for output in outputs] == ["CHANGED", "SUCCESS"]
    path = tmp_path / "metal-gpu-cuda.repo"
    assert path.stat().st_mode & 0o777 == 0o600
    found = rpm_node()
    observed = ObservedRepository.parse(
        "/etc/yum.repos.d/metal-gpu-cuda.repo",
        path.read_text(),
        found["repositories"]["metal-gpu-cuda"]["key"],
    )
    found["repositories"]["metal-gpu-cuda"] = observed._asdict()
    assert repository_reason(found, SECRET._replace(url=url), NOW) is None


# --- what is observed -----------------------------------------------------------------------------

LOGIN = {"username": "me", "password": PASSWORD}
FORMER = rpm_node(baseurl=SECRET.url)


def test_login_is_compared_and_not_shown() -> None:
    found = rpm_node(**LOGIN)
    assert repository_reason(found, SECRET, NOW) is None
    assert "CANARY" not in str(found)
    assert "'me'" not in str(found)
    token = RPM._replace(url=f"https://token@{PLACE}")
    assert repository_reason(rpm_node(username="token", password=""), token, NOW) is None
    variables = RPM._replace(url="https://me:x@mirror.example/el$releasever/")
    same = rpm_node(baseurl="https://mirror.example/el$releasever", username="me", password="x")
    assert repository_reason(same, variables, NOW) is None


@pytest.mark.parametrize(
    ("found", "url", "reason"),
    [
        pytest.param(FORMER, SECRET.url, "has a login in baseurl", id="of a former version"),
        pytest.param(FORMER, RPM.url, "has a login in baseurl", id="of one, and no longer wanted"),
        pytest.param(
            rpm_node(**{**LOGIN, "password": "CANARY"}),
            SECRET.url,
            "has different credentials",
            id="other password",
        ),
        pytest.param(
            rpm_node(**{**LOGIN, "username": "you"}), SECRET.url, "different cred", id="other user"
        ),
        pytest.param(rpm_node(), SECRET.url, "has different credentials", id="none yet"),
        pytest.param(rpm_node(**LOGIN), RPM.url, "has different credentials", id="no longer"),
        pytest.param(
            rpm_node(**LOGIN, baseurl="https://old.example/"),
            SECRET.url,
            f"has baseurl https://old.example/, not https://{PLACE}",
            id="other address",
        ),
    ],
)
def test_file_with_another_login_is_written_again(
    found: dict[str, Any], url: str, reason: str
) -> None:
    told = repository_reason(found, RPM._replace(url=url), NOW) or ""
    assert reason in told
    assert "CANARY" not in told
    assert is_ours(found, "metal-gpu-cuda")


def test_teardown_names_no_login() -> None:
    removed, _key = calls("no_repository")
    assert removed.options == {"name": "metal-gpu-cuda", "state": "absent"}
