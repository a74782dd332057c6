# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run is cut off between the write and the reload of Docker: the next run reloads."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.read import document_history_files
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import unread
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.history import History, remember
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import actor
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.docker.test_options import (  # noqa: E501
    LABELS,
    LOGS,
    OK,
    PATH,
    codes,
    having,
    planned,
    steps,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.docker.test_plan import (  # noqa: E501
    DISTRIBUTION,
    docker,
)
from ansible_collections.metal.gpu.tests.unit.support.observing import IN_THE_FUTURE
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import move, plant

HISTORY = "{}/{}".format(
    document_history_files.DIRECTORY,
    document_history_files.file_name(PATH, actor("docker_ce")),
)
PROXY = (
    "# BEGIN managed by Ansible, role metal.gpu.docker_ce\n"
    "HTTP_PROXY=http://p\n# END managed by Ansible, role metal.gpu.docker_ce\n"
)
BEFORE = '{"debug": true, "labels": ["a"]}'
WRITTEN = '{"labels": ["b"], "log-opts": {"max-size": "1m"}}'
STORED = remember(History(BEFORE, WRITTEN, BEFORE))
NOTHING = {"set": [], "removed": [], "proxy": False}


def unit(started_s: float, changed_s: float) -> str:
    return (
        "Id=docker.service\nActiveState=active\n"
        f"ActiveEnterTimestampMonotonic={int(started_s * 1e6)}\n"
        f"StateChangeTimestampMonotonic={int(changed_s * 1e6)}\n"
    )


def observed(observe: Any, shown: str) -> Any:
    node = observe(Programs({"systemctl show": (0, shown, "")}))
    return node["engines"]["docker"]["unread"]


def test_the_actor_is_that_of_the_role() -> None:
    assert actor("docker_ce") == unread._ACTOR


@pytest.mark.parametrize(
    ("started_s", "changed_s", "expected"),
    [
        pytest.param(
            1, 1,
            {"set": [["labels"], ["log-opts", "max-size"]], "removed": [["debug"]], "proxy": True},
            id="neither",
        ),
        pytest.param(
            1, IN_THE_FUTURE,
            {"set": [["log-opts", "max-size"]], "removed": [["debug"]], "proxy": True},
            id="reloaded since",
        ),
        pytest.param(IN_THE_FUTURE, IN_THE_FUTURE, NOTHING, id="started since"),
    ],
)  # fmt: skip
def test_what_docker_has_not_read(observe, tmp_path, started_s, changed_s, expected):
    texts = {PATH: WRITTEN, HISTORY: STORED, own_files.DOCKER_PROXY_VALUES: PROXY}
    unit_text = f"[Service]\nEnvironmentFile=-{own_files.DOCKER_PROXY_VALUES}\n"
    texts |= {own_files.DOCKER_PROXY: unit_text, "/usr/lib/systemd/system/docker.service": ""}
    plant(tmp_path, texts)
    assert observed(observe, unit(started_s, changed_s)) == expected


def test_file_behind_a_link(observe, tmp_path):
    real = "/srv/docker.json"
    name = document_history_files.file_name(real, actor("docker_ce"))
    plant(tmp_path, {PATH: WRITTEN, f"{document_history_files.DIRECTORY}/{name}": STORED})
    move(tmp_path, PATH, real)
    expected = {"set": [["labels"], ["log-opts", "max-size"]], "removed": [["debug"]]}
    assert observed(observe, unit(1, 1)) == {**expected, "proxy": False}


@pytest.mark.parametrize(("started_s", "expected"), [(1, True), (IN_THE_FUTURE, False)])
def test_removal_of_the_proxy_that_was_cut_off(observe, tmp_path, started_s, expected):
    """The drop-in is gone, and the emptied values are left."""
    emptied = PROXY.replace("HTTP_PROXY=http://p", "# The proxy is removed.")
    plant(tmp_path, {own_files.DOCKER_PROXY_VALUES: emptied})
    shown = unit(started_s, started_s)
    node = observe(Programs({"systemctl show": (0, shown, "")}))
    assert node["engines"]["docker"]["proxy"] == {}
    assert node["engines"]["docker"]["unread"]["proxy"] is expected
    assert own_files.DOCKER_PROXY_VALUES in node["ours"]["files"]


def test_file_of_the_admin_waits_for_the_next_start(observe, tmp_path):
    """The admin has edited the file and written a drop-in of this name."""
    texts = {PATH: BEFORE, HISTORY: STORED, own_files.DOCKER_PROXY: "[Service]\n"}
    plant(tmp_path, texts)
    os.utime(tmp_path / HISTORY[1:], times=(0, 0))
    assert observed(observe, unit(1, 1)) == NOTHING


@pytest.mark.parametrize("stored", ["{", remember(History(WRITTEN, WRITTEN, WRITTEN))])
def test_history_without_changes(observe, tmp_path, stored):
    plant(tmp_path, {PATH: WRITTEN, HISTORY: stored})
    assert observed(observe, unit(1, 1)) == NOTHING


def test_without_times(observe, tmp_path):
    """Systemd does not answer, or Docker does not run."""
    plant(tmp_path, {PATH: WRITTEN, HISTORY: STORED})
    assert observed(observe, "Id=docker.service\nActiveState=inactive\n") == NOTHING


def late(*keys: str, removed: tuple[str, ...] = ()) -> dict[str, Any]:
    found = {
        "set": [key.split(".") for key in keys],
        "removed": [key.split(".") for key in removed],
        "proxy": False,
    }
    return docker(unread=found)


@pytest.mark.parametrize(
    ("changes", "desired", "expected", "notices"),
    [
        pytest.param([late("labels")], LABELS, ["reload"], [], id="reloaded"),
        pytest.param([late("log-opts.max-size")], LABELS, [], ["DOCKER_OPTIONS_WAIT"],
                     id="needs a restart"),
        pytest.param([late("log-opts.max-size")], {**LABELS, **OK}, ["restart"], [],
                     id="which is allowed"),
        pytest.param([late(removed=("labels",))], {**LABELS, **OK}, ["restart"], [], id="removed"),
        pytest.param([late(removed=("debug",))], {**LABELS, "debug": True}, ["options", "reload"],
                     [], id="removed, and set again"),
        pytest.param([late("labels", "mtu")], LABELS, ["reload"], ["DOCKER_OPTIONS_WAIT"],
                     id="in part"),
        pytest.param([late("mtu")], {**LABELS, "debug": True}, [], ["DOCKER_OPTIONS_WAIT"],
                     id="no other change hides it"),
        pytest.param([late("labels"), docker(version="20.10.24")], {**LABELS, **OK}, ["restart"],
                     [], id="a Docker that cannot check a file"),
        pytest.param([late("labels"), docker(running=False)], LABELS, ["start"], [],
                     id="about to start"),
        pytest.param([late("labels")], {**LABELS, **LOGS, **OK}, ["options", "restart"], [],
                     id="with another change"),
        pytest.param([late("labels")], {**LABELS, "debug": True}, ["options", "reload"], [],
                     id="with another change that is reloaded"),
    ],
)  # fmt: skip
def test_the_next_run_finishes_it(
    changes: list[Any], desired: dict[str, Any], expected: list[str], notices: list[str]
) -> None:
    restart = desired.get("restart_ok", False)
    wanted = {key: value for key, value in desired.items() if key != "restart_ok"}
    made = planned(*changes, having(LABELS), daemon_options=wanted, restart_ok=restart)
    assert made["refusals"] == []
    assert steps(made) == expected
    assert [code for code in codes(made) if "OPTIONS" in code] == notices
    finishes = bool({"reload", "restart"} & {*expected})
    assert made["data"]["options_unread"] is finishes
    if finishes:
        (reason,) = (
            step["reason"] for step in made["steps"] if step["slug"] in ("reload", "restart")
        )
        assert reason.startswith("an interrupted run has changed ")
        assert made["data"]["options"]["path"] == PATH
        assert made["data"]["expected"]["default_runtime"] == "runc"


def test_docker_that_is_replaced_starts_anyway() -> None:
    made = planned(DISTRIBUTION, late("labels"), replace_distribution=True)
    assert not {"reload", "restart"} & {*steps(made)}


@pytest.mark.parametrize(
    ("restart", "running", "expected", "waits"),
    [
        (True, True, ["restart_proxy"], False),
        (False, True, [], True),
        (True, False, ["start"], False),
    ],
)
def test_proxy_that_docker_has_not_read(
    restart: bool, running: bool, expected: list[str], waits: bool
) -> None:
    value = "http://p"
    digest = sha256(value.encode()).hexdigest()
    path = own_files.DOCKER_PROXY_VALUES
    found = {"HTTP_PROXY": {"file": path, "ours": True, "sha256": digest}}
    changed = docker(proxy=found, unread={**NOTHING, "proxy": True}, running=running)
    made = planned(changed, proxy={"http": value}, restart_ok=restart)
    assert steps(made) == expected
    assert ("DOCKER_OPTIONS_WAIT" in codes(made)) is waits
