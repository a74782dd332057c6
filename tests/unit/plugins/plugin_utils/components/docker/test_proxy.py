# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""docker_ce_proxy: a drop-in of our own, and none for what another file says."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import systemd
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.values import values_of
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.docker.test_plan import (  # noqa: E501
    DISTRIBUTION,
    NO_RECORD,
    VIRGIN,
    docker,
    node,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    plan,
)

ROOT = Path(__file__).parents[6]
UNIT = "/etc/systemd/system/docker.service.d/metal-gpu-proxy.conf"
OURS = "/etc/systemd/system/docker.service.d/metal-gpu-proxy.env"
ADMINS = "/etc/systemd/system/docker.service.d/http-proxy.conf"
HTTP = "http://user:p%40ss@proxy.example:3128"
WANTED = {"http": HTTP, "no_proxy": ".example,10.0.0.0/8"}
OK = {"restart_ok": True}


def found(path: str = OURS, **values: str) -> dict[str, Any]:
    proxy = {
        name: {"file": path, "ours": path == OURS, "sha256": sha256(value.encode()).hexdigest()}
        for name, value in values.items()
    }
    return docker(proxy=proxy)


def planned(*changes: Any, proxy: Any = WANTED, **more: Any) -> Any:
    return plan("docker_ce", node(*changes), proxy=proxy, **more)


def steps(made: Any) -> list[str]:
    assert made["refusals"] == []
    return [step["slug"] for step in made["steps"]]


def notices(made: Any) -> list[str]:
    return [one["code"] for one in made["notices"]]


def environment(made: Any) -> dict[str, str]:
    """Return what systemd gives Docker with the two files."""
    files = (made["data"][name] for name in ("proxy", "proxy_values"))
    texts = {file["path"]: file["block"] for file in files}
    read = systemd.parse_environment(texts, "docker.service")
    assert {one.file for one in read.values()} == {OURS}
    return {name: one.value for name, one in read.items()}


DONE = found(HTTP_PROXY=HTTP, NO_PROXY=WANTED["no_proxy"])


@pytest.mark.parametrize(
    ("changes", "desired", "expected", "notice"),
    [
        pytest.param([], OK, ["proxy", "restart_proxy"], False, id="written"),
        pytest.param([], {}, [], True, id="needs a restart"),
        pytest.param([docker(running=False)], {}, ["start", "proxy"], False, id="before it starts"),
        pytest.param([DONE], {}, [], False, id="there"),
        pytest.param(
            [found(ADMINS, HTTP_PROXY=HTTP, NO_PROXY=WANTED["no_proxy"])], {}, [], False,
            id="in a file of the admin",
        ),
        pytest.param(
            [docker(config={"fingerprints": values_of({"proxies": {
                "http-proxy": HTTP, "no-proxy": WANTED["no_proxy"]}})})], {}, [], False,
            id="in daemon.json",
        ),
        pytest.param([found(HTTP_PROXY="http://old")], OK, ["proxy", "restart_proxy"], False,
                     id="another value of ours"),
        pytest.param([DONE], {"proxy": {}, **OK}, ["remove_proxy", "restart_proxy"], False,
                     id="no longer desired"),
        pytest.param([DONE], {"proxy": {}}, [], True, id="which needs a restart, too"),
        pytest.param([], {"proxy": {}}, [], False, id="nothing"),
    ],
)  # fmt: skip
def test_when_the_proxy_is_written(
    changes: list[Any], desired: Any, expected: list[str], notice: bool
) -> None:
    made = planned(*changes, **desired)
    assert steps(made) == expected
    assert ("DOCKER_OPTIONS_WAIT" in notices(made)) is notice


def test_only_what_no_other_file_has() -> None:
    made = planned(found(ADMINS, HTTP_PROXY=HTTP), **OK)
    assert "HTTP_PROXY" not in made["data"]["proxy_values"]["block"]
    assert environment(made) == {"NO_PROXY": WANTED["no_proxy"]}


def test_values_are_not_in_the_unit() -> None:
    """Every user of the node can see the settings of a unit."""
    data = planned(**OK)["data"]
    assert (data["proxy"]["path"], data["proxy_values"]["path"]) == (UNIT, OURS)
    assert "p%40ss" not in data["proxy"]["block"]
    modes = {
        task["ansible.builtin.blockinfile"]["path"]: (
            task["ansible.builtin.blockinfile"]["mode"],
            task.get("no_log", False),
        )
        for task in yaml.safe_load((ROOT / "roles/docker_ce/tasks/proxy.yml").read_text())
        if "ansible.builtin.blockinfile" in task
    }
    assert modes["{{ docker_ce_plan.data.proxy_values.path }}"] == ("0600", True)


def test_systemd_reads_the_value_as_it_was_given() -> None:
    """A percent sign is a specifier in units, not in environment files, and part of passwords."""
    assert environment(planned(**OK))["HTTP_PROXY"] == HTTP


def test_new_docker_starts_with_it() -> None:
    made = planned(VIRGIN)
    assert "proxy" in steps(made)
    assert "restart_proxy" not in steps(made)
    assert made["data"]["daemon_reload"] is True


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param(
            found(ADMINS, HTTP_PROXY="http://x"), f"{ADMINS} sets HTTP_PROXY to", id="a drop-in"
        ),
        pytest.param(
            docker(config={"fingerprints": values_of({"proxies": {"no-proxy": "x"}})}),
            "/etc/docker/daemon.json sets proxies.no-proxy to", id="daemon.json",
        ),
    ],
)  # fmt: skip
def test_proxy_of_the_admin(changes: Any, words: str) -> None:
    (refusal,) = planned(changes)["refusals"]
    assert refusal["code"] == "DOCKER_PROXY_TAKEN"
    assert words in refusal["message"]
    assert "p%40ss" not in str(refusal)


@pytest.mark.parametrize("proxy", [{"ftp": "x"}, {"http": 'a"b'}, {"http": "a b"}, {"http": None}])
def test_values_that_a_drop_in_cannot_have(proxy: Any) -> None:
    assert [one["code"] for one in planned(proxy=proxy)["refusals"]] == ["VARIABLE_INVALID"]


def test_drop_in_goes_with_the_role() -> None:
    made = planned(NO_RECORD, {"ours": {"files": [OURS]}}, state="absent")
    assert "remove_proxy" in steps(made)
    assert made["data"]["proxy_files"] == [OURS]


def left(*paths: str, unread: bool = True, **changes: Any) -> Any:
    """Return the changes of a node on which a removal was cut off."""
    found = {"set": [], "removed": [], "proxy": unread}
    return {"ours": {"files": [*paths]}, **docker(unread=found, **changes)}


@pytest.mark.parametrize(
    ("changes", "desired", "expected", "notice"),
    [
        pytest.param(left(UNIT, OURS), OK, ["remove_proxy", "restart_proxy"], False,
                     id="before the drop-in went"),
        pytest.param(left(OURS), OK, ["remove_proxy", "restart_proxy"], False,
                     id="before the restart"),
        pytest.param(left(OURS), {}, [], True, id="and the restart is not allowed any more"),
        pytest.param(left(OURS, unread=False), {}, ["remove_proxy"], False,
                     id="Docker has started since"),
        pytest.param(left(OURS, running=False), {}, ["start", "remove_proxy"], False,
                     id="Docker does not run"),
        pytest.param(left(), OK, [], False, id="nothing is left"),
    ],
)  # fmt: skip
def test_removal_that_was_cut_off(
    changes: Any, desired: Any, expected: list[str], notice: bool
) -> None:
    made = planned(changes, proxy={}, **desired)
    assert steps(made) == expected
    assert ("DOCKER_OPTIONS_WAIT" in notices(made)) is notice


THERE = {"ours": {"files": [UNIT, OURS]}}
OLD = found(HTTP_PROXY="http://old")


@pytest.mark.parametrize(
    ("changes", "desired", "expected"),
    [
        pytest.param([], {}, True, id="the drop-in is new"),
        pytest.param([OLD, THERE], {}, False, id="other values"),
        pytest.param([OLD, THERE, docker(needs_reload=True)], {}, True,
                     id="an earlier run was cut off"),
        pytest.param([DONE, THERE], {"proxy": {}}, True, id="the drop-in goes"),
        pytest.param([left(OURS)], {"proxy": {}}, False, id="the drop-in is gone"),
        pytest.param([OLD, NO_RECORD, THERE],
                     {"state": "absent"}, True, id="teardown"),
        pytest.param([NO_RECORD, {"ours": {"files": [OURS]}}],
                     {"state": "absent"}, False, id="teardown without a drop-in"),
    ],
)  # fmt: skip
def test_systemd_is_reloaded_for_the_drop_in_only(
    changes: list[Any], desired: Any, expected: bool
) -> None:
    """A reload can remove the access of running containers to their GPUs."""
    made = planned(*changes, **OK, **desired)
    assert {"proxy", "remove_proxy"} & {*steps(made)}
    assert made["data"]["proxy_reload"] is expected


def test_removal_that_was_cut_off_is_written_again() -> None:
    assert steps(planned(left(OURS), **OK)) == ["proxy", "restart_proxy"]


def test_the_values_go_first_and_their_file_last() -> None:
    """So a file is there until Docker has started without them."""
    listed = yaml.safe_load((ROOT / "roles/docker_ce/tasks/proxy.yml").read_text())
    removal = [task for task in listed if task["name"] == "Remove the proxy of Docker"]
    emptied, unit = removal
    later = yaml.safe_load((ROOT / "roles/docker_ce/tasks/present.yml").read_text())
    names = [task["name"] for task in later]
    values = later[names.index("Remove the proxy of Docker")]
    assert "no_log" in emptied
    assert "proxy_values.path" in emptied["ansible.builtin.blockinfile"]["path"]
    assert "proxy.path" in unit["vars"]["docker_ce_files"]
    assert "proxy_values.path" in values["vars"]["docker_ce_files"]
    restarts = [
        number for number, task in enumerate(listed) if task["name"].startswith("Restart Docker")
    ]
    assert listed.index(emptied) < listed.index(unit) < restarts[0]
    last_restart = max(n for n, name in enumerate(names) if name == "Write the options of Docker")
    assert names.index("Write the proxy of Docker") < last_restart < later.index(values)
    block = emptied["ansible.builtin.blockinfile"]["block"]
    assert systemd.parse_environment_file(f"{block}\n") == {}
    (removing, _folder) = yaml.safe_load((ROOT / "roles/docker_ce/tasks/no_proxy.yml").read_text())
    assert "proxy_values.path" in removing["vars"]["preflight_block_secret"]


LOGS = {"daemon_options": {"log-opts": {"max-size": "10m"}}}


@pytest.mark.parametrize(
    ("changes", "desired", "expected"),
    [
        pytest.param([], {}, ["options", "restart", "proxy"], id="both are new"),
        pytest.param([DONE, left(UNIT, OURS, unread=False)], {"proxy": {}},
                     ["options", "restart", "remove_proxy"], id="one goes"),
        pytest.param([DONE, left(UNIT, OURS)], {}, ["options", "restart"], id="one is unread"),
    ],
)  # fmt: skip
def test_one_restart_for_options_and_proxy(
    changes: list[Any], desired: Any, expected: list[str]
) -> None:
    made = planned(*changes, **LOGS, **OK, **desired)
    assert steps(made) == expected
    assert made["data"]["proxy_with_options"] is True


def test_restart_of_its_own_beside_a_reload() -> None:
    made = planned(daemon_options={"labels": ["a"]}, **OK)
    assert steps(made) == ["options", "reload", "proxy", "restart_proxy"]
    assert made["data"]["proxy_with_options"] is False


def test_docker_that_replaces_another_starts_with_the_proxy() -> None:
    made = planned(DISTRIBUTION, replace_distribution=True)
    assert "proxy" in steps(made)
    assert "restart_proxy" not in steps(made)
    assert made["data"]["daemon_reload"] is True
