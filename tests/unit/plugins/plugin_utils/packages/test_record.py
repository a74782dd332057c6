# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages are a role's, and which does a removal include?"""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.packages import RECORDS
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    DOCKER,
    DONE,
    OF_DRIVER,
    codes,
    merge,
    names,
    plan,
    record,
    repository,
    without_nulls,
)
from ansible_collections.metal.gpu.tests.unit.support import healthy

NO_PODS = {"kubelet": {"running": False}, "engines": {"docker": {"containers": []}}}
TOOLKIT = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
OTHER = {"version": "99-1", "held": False}


def absent(role: str, node: dict[str, Any], *changed_names: str) -> dict[str, Any]:
    changed = {"packages": dict.fromkeys(changed_names, OTHER)}
    return plan(role, merge(node, changed), state="absent")


@pytest.mark.parametrize(
    ("role", "node", "changed", "removed", "released"),
    [
        pytest.param(
            "docker_ce", merge(DOCKER, NO_PODS), "docker-ce",
            ["cri-dockerd"], ["docker-ce-cli", "containerd.io"], id="docker-ce",
        ),
        pytest.param(
            "docker_ce", merge(DOCKER, NO_PODS), "containerd.io",
            ["cri-dockerd"], ["docker-ce", "docker-ce-cli"], id="containerd.io",
        ),
        pytest.param(
            "nvidia_container_runtime", DONE, TOOLKIT[0], [], [*TOOLKIT[1:]], id="toolkit",
        ),
        pytest.param(
            "nvidia_container_runtime", DONE, TOOLKIT[3], [], [*TOOLKIT[:3]], id="library",
        ),
        pytest.param(
            "nvidia_driver", DONE, OF_DRIVER[2], [], [*OF_DRIVER[:2]], id="driver",
        ),
    ],
)  # fmt: skip
def test_packages_that_an_admin_changed_keep_the_packages_installed_with_them(
    role: str, node: dict[str, Any], changed: str, removed: list[str], released: list[str]
) -> None:
    """apt removes what depends on a package, even if the admin installed it."""
    planned = absent(role, node, changed)
    assert planned["refusals"] == []
    assert planned["data"]["packages"] == removed
    assert planned["data"]["release"] == released
    (notice,) = (one for one in planned["notices"] if one["code"] == "PACKAGES_EXCHANGED")
    assert f"{changed} 99-1" in notice["message"]
    assert ", ".join(released) in notice["message"]
    assert any(name.startswith("Delete the record") for name in names(planned))


@pytest.mark.parametrize(
    ("role", "node", "before", "stays"),
    [
        pytest.param(
            "nvidia_container_runtime", DONE, {TOOLKIT[0]: "1.9.0-1"}, [*TOOLKIT], id="toolkit"
        ),
        pytest.param(
            "nvidia_container_runtime", DONE, {TOOLKIT[3]: "1.9.0-1"}, [TOOLKIT[3]], id="library"
        ),
        pytest.param(
            "docker_ce", merge(DOCKER, NO_PODS), {"containerd.io": "1.7-1"}, ["containerd.io"],
            id="containerd.io",
        ),
    ],
)  # fmt: skip
def test_packages_from_before_keep_their_dependencies(
    role: str, node: dict[str, Any], before: dict[str, str], stays: list[str]
) -> None:
    recorded = {name: {"before": version} for name, version in before.items()}
    changed = merge(node, {"ours": {"packages": {role: {"packages": recorded}}}})
    planned = plan(role, changed, state="absent")
    assert planned["data"]["release"] == stays
    assert not {*stays} & {*planned["data"]["packages"]}


def test_the_admins_cri_dockerd_keeps_containerd() -> None:
    """Because the package of cri-dockerd depends on containerd.io."""
    planned = absent("docker_ce", merge(DOCKER, NO_PODS), "cri-dockerd")
    assert planned["data"]["packages"] == ["docker-ce", "docker-ce-cli"]
    assert planned["data"]["release"] == ["containerd.io"]


def test_a_changed_set_stays_the_admins_after_the_next_installation() -> None:
    """Otherwise a removal of the new packages would remove the admin's."""
    older = {"version": "1.18.0-1", "held": False}
    changes = {"packages": {TOOLKIT[0]: older}, "toolkit": {"version": "1.18.0"}}
    planned = plan("nvidia_container_runtime", merge(DONE, changes), upgrade_ok=True)
    recorded = planned["data"]["packages_record"]
    assert recorded["packages"] == {
        TOOLKIT[0]: {"version": "1.20.1-1", "before": "1.18.0-1"},
        **{name: {"version": "1.20.1-1", "before": "1.20.1-1"} for name in TOOLKIT[1:]},
    }
    done = merge(DONE, {"ours": {"packages": {"nvidia_container_runtime": recorded}}})
    assert plan("nvidia_container_runtime", done, state="absent")["data"]["packages"] == []


@pytest.mark.parametrize(
    ("role", "node", "name"),
    [
        ("docker_ce", merge(DOCKER, NO_PODS), "cri-dockerd"),
        ("nvidia_driver", DONE, OF_DRIVER[2]),
    ],
)
def test_a_package_without_a_recorded_version_is_the_admins(
    role: str, node: dict[str, Any], name: str
) -> None:
    recorded = {role: {"packages": {name: {"version": "", "before": None}}}}
    planned = plan(role, merge(node, {"ours": {"packages": recorded}}), state="absent")
    assert name not in planned["data"]["packages"]
    assert name not in planned["data"]["release"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "the file is empty", id="empty"),
        pytest.param(" \n", "the file is empty", id="blank"),
        pytest.param("{", "line 1, column 2", id="cut"),
        pytest.param("[]", "", id="a list"),
        pytest.param('{"docker-ce": null}', "docker-ce", id="null"),
        pytest.param('{"docker-ce": "1"}', "docker-ce", id="a text"),
        pytest.param('{"docker-ce": []}', "docker-ce", id="a list in a table"),
        pytest.param('{"docker-ce": {"version": 1, "before": null}}', "docker-ce", id="number"),
        pytest.param('{"docker-ce": {"version": "1"}}', "docker-ce", id="no before"),
        pytest.param('{"docker-ce": {"version": "1", "before": 1}}', "docker-ce", id="before 1"),
        pytest.param('{"docker-ce": {"before": null}}', "docker-ce", id="no version"),
        pytest.param(None, "Permission denied", id="unreadable"),
    ],
)
@pytest.mark.parametrize("state", ["present", "absent"])
def test_an_invalid_record_is_refused(text: str | None, words: str, state: str) -> None:
    node = healthy.docker_node()
    path = RECORDS.replace("*", "docker_ce")
    if text is None:
        node.raw["texts"].pop(path, None)
        node.raw["errors"][path] = "Permission denied"
    else:
        node.raw["texts"][path] = text
    planned = node.plans(node.observed(), state, ["docker_ce"])["docker_ce"]
    assert codes(planned) == ["PACKAGE_RECORD_INVALID"]
    assert (planned["steps"], planned["notices"]) == ([], [])
    message = planned["refusals"][0]["message"]
    assert path in message
    assert words in message


def test_a_record_without_packages_is_valid() -> None:
    node = healthy.docker_node()
    node.raw["texts"][RECORDS.replace("*", "docker_ce")] = "{}\n"
    assert node.observed()["ours"]["packages"]["docker_ce"]["error"] is None


LOST = {**DONE, "ours": {**DONE["ours"], "packages": {}, "edits": []}}
OF_TOOLKIT = repository("container-toolkit")
UNHELD = {"packages": {name: {"held": False} for name in TOOLKIT}}
DROP_IN = "/etc/containerd/conf.d/99-metal-gpu.toml"
WITH_DROP_IN = {"engines": {"containerd": {"config": {"imported_nvidia": [DROP_IN]}}}}
HISTORY = {
    "ours": {"edits": [{**DONE["ours"]["edits"][0], "path": f"/mnt/etc/conf.d/{DROP_IN[-18:]}"}]}
}


@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize(
    ("role", "changes", "words"),
    [
        pytest.param(
            "nvidia_driver", {},
            ["/metal-gpu-nvidia-driver.pref", "/70-metal-gpu-device-files.rules",
             "hold on nvidia-driver-cuda", "apt-mark unhold nvidia-driver-cuda"], id="driver",
        ),
        pytest.param(
            "nvidia_driver", {"os": {"family": "redhat"}}, ["dnf versionlock delete "], id="dnf",
        ),
        pytest.param(
            "nvidia_driver", {"ours": record("docker_ce", {})}, ["preferences.d"], id="of another",
        ),
        pytest.param(
            "nvidia_container_runtime", {"repositories": OF_TOOLKIT},
            ["container-toolkit.sources", "the runtime nvidia of containerd"], id="toolkit",
        ),
        pytest.param(
            "containerd", {"repositories": repository("docker")}, ["docker.sources"], id="engine",
        ),
    ],
)  # fmt: skip
def test_record_that_somebody_deleted(
    role: str, changes: Any, words: list[str], state: str
) -> None:
    """No step: our own driver would be taken for the admin's, and lose its pin."""
    planned = plan(role, merge(LOST, changes), state=state)
    assert (codes(planned), planned["steps"], planned["notices"]) == (["RECORD_MISSING"], [], [])
    (found,) = planned["refusals"]
    assert [one for one in words if one not in f"{found['message']} {found['remedy']}"] == []


@pytest.mark.parametrize(
    ("role", "node"),
    [
        pytest.param("nvidia_driver", {**LOST, "ours": {**LOST["ours"], "files": []}}, id="taken"),
        pytest.param(
            "nvidia_driver",
            merge({**LOST, "driver": {**DONE["driver"], "packages": {"nvidia-settings": "1"}}},
                  {"repositories": repository("nvidia-driver")}),
            id="an installation that did not begin, beside a program of the admin",
        ),
        pytest.param(
            "nvidia_container_runtime", merge(merge(LOST, {"repositories": OF_TOOLKIT}), UNHELD),
            id="an admin's from our repository",
        ),
        pytest.param(
            "containerd",
            merge(LOST, {"repositories": repository("docker"), "ours": record("docker_ce", {})}),
            id="Docker's role has the same repository",
        ),
        pytest.param(
            "nvidia_container_runtime", merge(merge(LOST, WITH_DROP_IN), HISTORY),
            id="a drop-in with a history, which has its real path",
        ),
    ],
)  # fmt: skip
def test_nothing_was_recorded(role: str, node: dict[str, Any]) -> None:
    assert "RECORD_MISSING" not in codes(plan(role, without_nulls(node), state="absent"))


def test_drop_in_without_a_history_stops_the_teardown() -> None:
    """The runtime would stay, whichever engine the node has."""
    node = merge(LOST, WITH_DROP_IN)
    assert codes(plan("nvidia_container_runtime", node, state="absent")) == ["RECORD_MISSING"]
    assert codes(plan("nvidia_container_runtime", node)) == []
