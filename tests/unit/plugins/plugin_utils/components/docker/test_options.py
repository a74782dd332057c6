# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""docker_ce_daemon_options: keys of the admin stay, and nothing waits for a later start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import data
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.unread import RELOADABLE
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.values import (
    values_of,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import history
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.edit import Edits
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.load import outline
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import fingerprint
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
RECORD = yaml.safe_load((ROOT / "tests/recorded/docker_daemon.yml").read_text())
PATH = "/etc/docker/daemon.json"
LOGS = {"log-opts": {"max-size": "10m"}}
LABELS = {"labels": ["rack=7"]}
OK = {"restart_ok": True}


def having(text: dict[str, Any], **engine: Any) -> dict[str, Any]:
    """Return the changes of a node whose daemon.json has this content."""
    config = {"settings": [*text], "fingerprints": values_of(text), "outline": outline(text)}
    return docker(config=config, **engine)


def ours(*changes: tuple[list[str], Any, Any]) -> dict[str, Any]:
    """Return the record of what the role wrote: keys, former values, and its values."""
    made = [
        {"key": key, "before": before, "after": fingerprint(after)}
        for key, before, after in changes
    ]
    edit = {"path": PATH, "actor": "metal.gpu.docker_ce", "changes": made, "error": None}
    return {"ours": {"edits": [edit]}}


def planned(*changes: dict[str, Any], state: str = "present", **desired: Any) -> Any:
    return plan("docker_ce", node(*changes), state=state, **desired)


def steps(made: Any) -> list[str]:
    return [step["slug"] for step in made["steps"]]


def codes(made: Any, kind: str = "notices") -> list[str]:
    return [one["code"] for one in made[kind]]


def test_reloadable_options_are_those_of_the_record() -> None:
    rows = {row["what"]: row["value"] for row in RECORD["reload"]["rows"]}
    assert {*RELOADABLE} == {*rows["applied"]} - {"default-runtime"}
    assert not RELOADABLE & {*rows["needs a start"], *rows["said to be applied"]}


@pytest.mark.parametrize(
    ("changes", "desired", "expected", "notices"),
    [
        pytest.param([], {}, [], [], id="nothing"),
        pytest.param([having(LABELS)], LABELS, [], [], id="there"),
        pytest.param([], LABELS, ["options", "reload"], [], id="reloaded"),
        pytest.param([], LOGS, [], ["DOCKER_OPTIONS_WAIT"], id="needs a restart"),
        pytest.param([], {**LOGS, **OK}, ["options", "restart"], [], id="which is allowed"),
        pytest.param(
            [], {**LOGS, **LABELS}, ["options", "reload"], ["DOCKER_OPTIONS_WAIT"], id="in part"
        ),
        pytest.param(
            [docker(version="20.10.24")], LABELS, [], ["DOCKER_OPTIONS_WAIT"],
            id="a Docker that cannot check the file",
        ),
        pytest.param(
            [docker(version="20.10.24")], {**LABELS, **OK}, ["options", "restart"], [],
            id="which a restart checks",
        ),
        pytest.param(
            [docker(running=False)], LOGS, ["start", "options"], [], id="before it starts"
        ),
        pytest.param(
            [having(LOGS), ours((["log-opts", "max-size"], None, "10m"))], {}, [],
            ["DOCKER_OPTIONS_WAIT"], id="no longer desired",
        ),
        pytest.param(
            [having(LOGS), ours((["log-opts", "max-size"], None, "10m"))], OK,
            ["options", "restart"], [], id="and taken back",
        ),
    ],
)  # fmt: skip
def test_when_options_are_written(
    changes: list[Any], desired: dict[str, Any], expected: list[str], notices: list[str]
) -> None:
    restart = desired.get("restart_ok", False)
    wanted = {key: value for key, value in desired.items() if key != "restart_ok"}
    made = planned(*changes, daemon_options=wanted, restart_ok=restart)
    assert made["refusals"] == []
    assert steps(made) == expected
    assert [code for code in codes(made) if "OPTIONS" in code] == notices


def test_new_docker_starts_with_its_options() -> None:
    made = planned(VIRGIN, daemon_options=LOGS)
    assert made["data"]["options_first"] is True
    assert made["data"]["options_program"] is None  # nothing could check it
    assert steps(made)[0] == "options"
    assert "restart" not in steps(made)


def test_docker_that_replaces_another_is_not_installed_with_them() -> None:
    """If they were wrong, the admin's containers would be down."""
    made = planned(DISTRIBUTION, daemon_options=LABELS, replace_distribution=True)
    assert made["data"]["options_first"] is False
    assert made["data"]["options_program"] == "/usr/bin/dockerd"  # that of docker-ce
    assert steps(made).index("options") > steps(made).index("containers")


def test_docker_that_runs_checks_its_options() -> None:
    made = planned(docker(path="/usr/sbin/dockerd", version="26.1.5"), daemon_options=LABELS)
    assert made["data"]["options_program"] == "/usr/sbin/dockerd"
    old = planned(docker(version="20.10.24"), daemon_options=LABELS, **OK)
    assert old["data"]["options_program"] is None


BEFORE = """{
  "log-driver": "local",
  "log-opts": { "max-file": "3" },
  "labels": ["a"]
}
"""


def test_only_the_desired_keys_change() -> None:
    text = json.loads(BEFORE)
    made = planned(having(text), daemon_options=LOGS, **OK)
    edit = made["data"]["options"]
    assert (edit["remove"], edit["merge"]) == ([], LOGS)
    after = history.change(BEFORE, "json", Edits(merge=edit["merge"]))
    assert after == BEFORE.replace('"max-file": "3"', '"max-file": "3", "max-size": "10m"')


def test_former_value_comes_back() -> None:
    """The role has changed a value that it had been told about, and added another."""
    text = {"debug": True, "labels": ["b"]}
    edits = ours((["debug"], False, True), (["labels"], None, ["b"]))
    made = planned(having(text), edits, daemon_options={}, **OK)
    assert made["data"]["options"] == {
        "path": PATH, "remove": [["labels"]], "merge": {"debug": False},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "desired", "keys"),
    [
        pytest.param({"log-opts": {"max-size": "5m"}}, LOGS, "log-opts.max-size", id="value"),
        pytest.param({"log-opts": "x"}, LOGS, "log-opts.max-size", id="no table"),
        pytest.param({"labels": {"a": 1}}, LABELS, "labels", id="a table"),
        pytest.param(
            {"log-opts": {"max-size": "5m"}, "labels": []}, {**LOGS, **LABELS},
            "log-opts.max-size, labels", id="all at once",
        ),
        pytest.param({"log-opts": {"max-file": "3"}}, LOGS, None, id="another key of the table"),
        pytest.param({"log-opts": {}}, LOGS, None, id="an empty table"),
    ],
)  # fmt: skip
def test_values_of_the_admin_are_not_replaced(text: Any, desired: Any, keys: str | None) -> None:
    made = planned(having(text), daemon_options=desired)
    assert codes(made, "refusals") == (["DOCKER_OPTION_TAKEN"] if keys else [])
    assert all(f"for {keys}, and" in one["message"] for one in made["refusals"])
    assert all("5m" not in one["message"] for one in made["refusals"])  # it could be a secret


def test_value_that_the_role_has_set_may_change() -> None:
    changes = having({"labels": ["rack=6"]}), ours((["labels"], None, ["rack=6"]))
    made = planned(*changes, daemon_options=LABELS)
    assert made["refusals"] == []
    assert made["data"]["options"]["merge"] == LABELS


@pytest.mark.parametrize(
    ("desired", "words"),
    [
        ({"default-runtime": "nvidia"}, "nvidia_container_runtime_default decides"),
        ({"runtimes": {"nvidia": {"path": "x"}}}, "nvidia_container_runtime_state decides"),
        ({"features": {"cdi": False}}, "features.cdi, which nvidia_container_runtime_cdi decides"),
    ],
)
def test_options_of_another_role(desired: Any, words: str) -> None:
    (refusal,) = planned(daemon_options=desired)["refusals"]
    assert refusal["code"] == "VARIABLE_INVALID"
    assert words in refusal["message"]


def test_other_runtimes_and_features_are_free() -> None:
    wanted = {"runtimes": {"kata": {"path": "/k"}}, "features": {"buildkit": True}}
    assert planned(daemon_options=wanted)["refusals"] == []


OF_US = ours((["log-driver"], None, "local"), (["debug"], False, True), (["mtu"], 1400, 9000))
REGISTRIES = ours((["insecure-registries"], None, ["a"]))


@pytest.mark.parametrize(
    ("text", "merge", "remove"),
    [
        pytest.param({"log-driver": "local"}, {}, [["log-driver"]], id="as written"),
        pytest.param({"log-driver": "journald"}, {}, [], id="changed"),
        pytest.param({}, {}, [], id="removed"),
        pytest.param({"debug": False}, {}, [], id="taken back"),
        pytest.param({"mtu": 9000, "log-driver": "x"}, {"mtu": 1400}, [], id="one of several"),
    ],
)
def test_what_the_admin_has_changed_since_stays(text: Any, merge: Any, remove: Any) -> None:
    """Docker would restart on each run, or lose the admin's value."""
    made = planned(having(text), OF_US, daemon_options={}, **OK)
    assert made["refusals"] == []
    assert steps(made) == (["options", "restart"] if merge or remove else [])
    edit = made["data"].get("options", {"merge": {}, "remove": []})
    assert (edit["merge"], edit["remove"]) == (merge, remove)
    waits = "DOCKER_OPTIONS_WAIT" in codes(planned(having(text), OF_US))
    of_admin = NO_RECORD
    are_old = "DOCKER_OPTIONS_OLD" in codes(planned(having(text), OF_US, of_admin, state="absent"))
    assert (waits, are_old) == (bool(merge or remove), bool(merge or remove))


def test_option_in_another_case_is_refused_before_anything_changes() -> None:
    """Docker takes both, and the editor refuses to guess which one counts."""
    made = planned(having({"log-opts": {"Max-Size": "5m"}}), daemon_options=LOGS)
    assert codes(made, "refusals") == ["CONFIG_NOT_EDITABLE"]


def test_value_of_the_role_that_the_admin_has_extended() -> None:
    text = {"insecure-registries": ["a", "of-admin"]}
    made = planned(having(text), REGISTRIES, daemon_options={"insecure-registries": ["a"]})
    assert codes(made, "refusals") == ["DOCKER_OPTION_TAKEN"]
    kept = planned(having(text), REGISTRIES, daemon_options=text)
    assert (kept["refusals"], steps(kept)) == ([], [])


def test_edit_without_a_change_restarts_nothing() -> None:
    """Between the plan and the edit, somebody else can have made the change."""
    tasks = yaml.safe_load((ROOT / "roles/docker_ce/tasks/options.yml").read_text())
    assert tasks[0]["register"] == "docker_ce_options"
    assert len(tasks) == 3
    condition = "docker_ce_options is changed or docker_ce_plan.data.options_unread"
    assert all(task["when"][1].startswith(condition) for task in tasks[1:])


def test_record_is_that_of_the_file() -> None:
    """The plan compares the file with what the history says, from the same texts."""
    written = history.change(BEFORE, "json", Edits(merge={"labels": ["b"], "debug": True}))
    assert written
    made = history.changes(json.loads(BEFORE), json.loads(written))
    found = {tuple(one["key"]): (one["before"], one["after"]) for one in made}
    values = values_of(json.loads(written))
    assert found == {
        ("labels",): (["a"], values["labels"]),
        ("debug",): (None, values["debug"]),
    }


NEW_ROOT = {"data-root": "/mnt/nvme/docker"}
ROOT_OF_US = ours((["data-root"], None, "/mnt/nvme/docker"))
SNAPSHOTTER = {"features": {"containerd-snapshotter": True}}


def test_options_that_decide_where_the_data_is_are_those_of_the_record() -> None:
    rows = {row["what"]: row["value"] for row in RECORD["data"]["rows"]}
    assert {".".join(key) for key in data.PLACES} == {*rows["decide where Docker finds its data"]}


@pytest.mark.parametrize(
    ("changes", "desired", "keys"),
    [
        pytest.param([], NEW_ROOT, "data-root (now /var/lib/docker)", id="root"),
        pytest.param([docker(running=False)], NEW_ROOT, "data-root (now /var/lib/docker)",
                     id="of a Docker that is stopped"),
        pytest.param([DISTRIBUTION], NEW_ROOT, "data-root (now /var/lib/docker)",
                     id="of a Docker that stays, or is replaced"),
        pytest.param([docker(data_root="/mnt/nvme/docker")], {"data-root": "/mnt/nvme/docker/"},
                     None, id="that it has"),
        pytest.param([docker(data_root="/mnt/nvme/docker/231072.231072")], NEW_ROOT, None,
                     id="of a remapped user"),
        pytest.param([having(NEW_ROOT, data_root="/mnt/nvme/docker"), ROOT_OF_US], NEW_ROOT, None,
                     id="that the role has set"),
        pytest.param([having(NEW_ROOT, data_root="/mnt/nvme/docker"), ROOT_OF_US], {},
                     "data-root (now /mnt/nvme/docker)", id="that leaves the variable"),
        pytest.param([having(NEW_ROOT, data_root="/mnt/nvme/docker"), ROOT_OF_US],
                     {"data-root": "/b"}, "data-root (now /mnt/nvme/docker)", id="that changes"),
        pytest.param([having({"data-root": "/srv"}, data_root="/srv")], NEW_ROOT,
                     "data-root (now /srv)", id="of the admin"),
        pytest.param([], {"storage-driver": "zfs"}, "storage-driver (now overlay2)", id="driver"),
        pytest.param([], {"storage-driver": "overlay2"}, None, id="that is in use"),
        pytest.param([docker(storage_driver=None)], {"storage-driver": "overlay2"},
                     "storage-driver", id="that nobody knows"),
        pytest.param([], {"userns-remap": "default", **SNAPSHOTTER},
                     "userns-remap, features.containerd-snapshotter", id="all at once"),
        pytest.param([having(SNAPSHOTTER)], SNAPSHOTTER, None, id="there"),
        pytest.param([VIRGIN], {**NEW_ROOT, **SNAPSHOTTER}, None, id="a new Docker"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("restart", [True, False])
def test_installed_docker_keeps_its_data(
    changes: list[Any], desired: Any, keys: str | None, restart: bool
) -> None:
    """Permission to restart it is no permission to start it empty."""
    made = planned(
        *changes, daemon_options=desired, restart_ok=restart, replace_distribution=restart
    )
    assert codes(made, "refusals") == (["DOCKER_DATA_MOVES"] if keys else [])
    assert all(one["message"].endswith(f"without them: {keys}") for one in made["refusals"])


def test_option_that_is_a_flag_of_the_unit() -> None:
    """docker-ce's unit has -H: with the key, too, Docker would not start again."""
    made = planned(daemon_options={"hosts": ["tcp://0.0.0.0:1"]})
    assert codes(made, "refusals") == ["DOCKER_FLAG_CLASH"]


def test_file_that_cannot_be_edited() -> None:
    twice = docker(config={"obstacle": f'{PATH}, line 2, column 2: key "debug" appears twice'})
    assert codes(planned(twice, daemon_options=LABELS), "refusals") == ["CONFIG_NOT_EDITABLE"]
    assert codes(planned(twice), "refusals") == []


def test_options_go_with_the_role() -> None:
    gone = [having(LABELS), ours((["labels"], None, ["rack=7"]))]
    of_admin = NO_RECORD
    made = planned(*gone, of_admin, state="absent")
    assert steps(made) == ["restore_options"]
    assert "DOCKER_OPTIONS_OLD" in codes(made)
    assert made["data"]["option_edits"] == [PATH]
    assert "restore_options" not in steps(planned(of_admin, state="absent"))


@pytest.mark.parametrize(
    ("changes", "expected", "hold"),
    [
        pytest.param([VIRGIN], "docker-compose-plugin", True, id="with Docker"),
        pytest.param([], "docker-compose-plugin", True, id="beside Docker"),
        pytest.param([DISTRIBUTION], "docker-compose-plugin", True, id="beside docker.io"),
        pytest.param(
            [{"packages": {"docker-compose-plugin": {"version": "5.1.0-1", "held": True}}}], None,
            False, id="there",
        ),
    ],
)  # fmt: skip
def test_additional_packages(changes: list[Any], expected: str | None, hold: bool) -> None:
    made = planned(*changes, packages=["docker-compose-plugin"])
    assert made["refusals"] == []
    assert ("install" in steps(made)) is (expected is not None)
    if expected:
        assert expected in made["data"]["packages"]
        assert expected in made["data"]["packages_record"]["packages"]
    assert ("hold" in steps(made)) is hold
    if hold:
        assert "docker-compose-plugin" in made["data"]["hold"]


def test_package_that_is_never_observed() -> None:
    (refusal,) = planned(packages=["podman", "docker-ce=1"])["refusals"]
    assert refusal["code"] == "VARIABLE_INVALID"
    assert "podman, docker-ce=1" in refusal["message"]


@pytest.mark.parametrize(
    ("names", "refusals"),
    [
        (["docker-compose-plugin"], []),
        (["docker-compose-plugin", "docker-ce"], ["DOCKER_IN_USE"]),
        (["cri-dockerd"], ["DOCKER_IN_USE"]),
    ],
)
def test_additional_packages_go_from_a_docker_that_stays(
    names: list[str], refusals: list[str]
) -> None:
    """Pods run in it. The kubelet needs the engine, and not the plugins of its command line."""
    entries = {name: {"version": "1", "before": None} for name in names}
    record = {"path": "/r/docker_ce.json", "packages": entries, "error": None}
    installed = {"packages": {name: {"version": "1", "held": True} for name in names}}
    text = having(LABELS), ours((["labels"], None, ["rack=7"]))
    of_admin, of_role = ({"ours": {"packages": {"docker_ce": one}}} for one in (None, record))
    made = planned(*text, installed, of_admin, of_role, state="absent")
    assert codes(made, "refusals") == refusals
    if not refusals:
        assert made["data"]["packages"] == names
        assert "remove" in steps(made)
        assert {"ENGINE_OF_ADMIN", "DOCKER_OPTIONS_OLD"} <= {*codes(made)}
