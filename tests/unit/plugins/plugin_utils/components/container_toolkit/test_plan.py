# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The runtime in Docker, and how both engines are given back what was theirs."""

from __future__ import annotations

import copy
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import (
    packages as toolkit_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit.cdi import (
    CDI_DROP_IN,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    DOCKER,
    DONE,
    UNVERSIONED,
    VIRGIN,
    codes,
    load,
    merge,
    names,
    plan,
    record,
    repository,
    without_nulls,
)

PACKAGES = toolkit_packages.PACKAGES
PLANNER = "nvidia_container_runtime"
ACTOR = "metal.gpu.nvidia_container_runtime"
DAEMON_JSON = "/etc/docker/daemon.json"
BINARY = {"type": None, "binary": "/usr/bin/nvidia-container-runtime"}
BY_NAME = {"type": None, "binary": "nvidia-container-runtime"}
NO_CDI = {"cdi_enabled": False, "config": {"cdi_enabled": False}}
DEFAULT_KEY = [
    *("plugins", "io.containerd.cri.v1.runtime", "containerd"),
    "default_runtime_name",
]


def docker(**values: Any) -> dict[str, Any]:
    return {"engines": {"docker": values}}


def edits(path: str, *changes: tuple[list[str], Any]) -> dict[str, Any]:
    """The file has been edited by this role: key paths, and what was there before."""
    made = [{"key": key, "before": before} for key, before in changes]
    edit = {"path": path, "actor": ACTOR, "changes": made, "untouched": True, "error": None}
    return {"ours": {"edits": [edit]}}


def flag(name: str, value: str) -> dict[str, Any]:
    file = "/etc/systemd/system/docker.service.d/owner.conf"
    return {"name": name, "value": value, "file": file, "variable": None, "effective": True}


# The toolkit is there, and Docker knows nothing of it.
TOOLKIT = {key: value for key, value in load("done").items() if key not in ("engines", "ours")}
FRESH = merge(DOCKER, TOOLKIT)
NVIDIA = merge(
    FRESH,
    docker(
        default_runtime="nvidia",
        runtimes={"nvidia": BINARY},
        config={
            "settings": ["log-opts", "default-runtime", "runtimes"],
            "default_runtime": "nvidia",
            "runtimes": {"nvidia": BINARY},
        },
    ),
)
OURS = merge(
    NVIDIA,
    {
        **edits(DAEMON_JSON, (["default-runtime"], None), (["runtimes", "nvidia", "path"], None)),
        "repositories": repository("container-toolkit"),
    },
)
OURS["ours"]["packages"] = DONE["ours"]["packages"]
REGISTER = ["Register the NVIDIA runtime", "Reload Docker"]
HOOK = "/usr/bin/nvidia-container-runtime-hook"
RESTART_DUE = merge(NVIDIA, docker(changed_since_start=[HOOK]))


@pytest.mark.parametrize(
    ("node", "desired", "steps", "merged"),
    [
        pytest.param(NVIDIA, {}, [], {}, id="done"),
        pytest.param(
            FRESH,
            {},
            REGISTER,
            {"runtimes": {"nvidia": {"path": BINARY["binary"]}}, "default-runtime": "nvidia"},
            id="fresh",
        ),
        pytest.param(
            FRESH,
            {"default": False},
            REGISTER,
            {"runtimes": {"nvidia": {"path": BINARY["binary"]}}},
            id="not-by-default",
        ),
        pytest.param(
            merge(
                FRESH,
                docker(runtimes={"nvidia": BY_NAME}, config={"runtimes": {"nvidia": BY_NAME}}),
            ),
            {},
            REGISTER,
            {"default-runtime": "nvidia"},
            id="nvidia-docker2-is-adopted",
        ),
        pytest.param(
            merge(
                NVIDIA,
                docker(
                    runtimes={"nvidia": {"type": None, "binary": "/opt/old"}},
                    config={"runtimes": {"nvidia": {"type": None, "binary": "/opt/old"}}},
                ),
            ),
            {},
            REGISTER,
            {"runtimes": {"nvidia": {"path": BINARY["binary"]}}},
            id="another-program",
        ),
        pytest.param(
            merge(NVIDIA, docker(default_runtime="runc")),
            {},
            ["Reload Docker"],
            {},
            id="cut-before-the-reload",
        ),
        pytest.param(
            merge(NVIDIA, docker(config={"runtimes": {"nvidia": None}, "default_runtime": None})),
            {},
            REGISTER,
            {"runtimes": {"nvidia": {"path": BINARY["binary"]}}, "default-runtime": "nvidia"},
            id="file-overwritten-since",
        ),
        pytest.param(
            merge(
                NVIDIA,
                docker(
                    config={"runtimes": {"nvidia": None}, "default_runtime": None, "settings": []},
                    flags=[
                        flag("--add-runtime", "nvidia=/usr/bin/nvidia-container-runtime"),
                        flag("--default-runtime", "nvidia"),
                    ],
                ),
            ),
            {},
            [],
            {},
            id="flags-say-it",
        ),
        pytest.param(
            OURS, {"default": False}, REGISTER, {"default-runtime": "runc"}, id="default-goes-back"
        ),
        pytest.param(
            merge(OURS, edits(DAEMON_JSON, (["default-runtime"], "quiet"))),
            {"default": False},
            REGISTER,
            {"default-runtime": "quiet"},
            id="default-of-the-owner-comes-back",
        ),
        pytest.param(NVIDIA, {"default": False}, [], {}, id="default-of-the-owner-stays"),
        pytest.param(
            merge(NVIDIA, docker(version="20.10.24", **NO_CDI)),
            {},
            [],
            {},
            id="20.10-has-no-CDI",
        ),
        pytest.param(
            merge(NVIDIA, docker(version="26.1.5", **NO_CDI)),
            {},
            REGISTER,
            {"features": {"cdi": True}},
            id="26.1-has-CDI-off",
        ),
        pytest.param(
            merge(NVIDIA, docker(version="28.5.2")),
            {},
            [],
            {},
            id="28.5-has-CDI-on",
        ),
    ],
)
def test_docker(
    node: dict[str, Any], desired: dict[str, Any], steps: list[str], merged: dict[str, Any]
) -> None:
    planned = plan(PLANNER, node, **{"default": None, **desired})
    assert planned["refusals"] == []
    assert names(planned) == steps
    assert planned["data"]["config"] == {"path": DAEMON_JSON, "remove": [], "merge": merged}
    assert planned["data"]["has_changed"] is bool(steps)


@pytest.mark.parametrize(
    ("version", "validates", "notices"),
    [
        ("20.10.24", False, []),
        ("23.0.0", True, []),
        ("26.1.5", True, ["DOCKER_RESTART_DUE"]),
        ("28.1.1", True, ["DOCKER_RESTART_DUE"]),
    ],
)
def test_docker_by_version(version: str, validates: bool, notices: list[str]) -> None:
    node = merge(NVIDIA, docker(version=version, cdi_enabled=False, config={"cdi_enabled": True}))
    planned = plan(PLANNER, node, default=None)
    assert planned["steps"] == []
    assert planned["data"]["validates"] is validates
    assert [notice["code"] for notice in planned["notices"]] == notices


@pytest.mark.parametrize(
    ("desired", "reason"),
    [
        pytest.param({}, None, id="not-permitted"),
        pytest.param(
            {"restart_ok": True}, "nvidia_container_runtime_restart_ok is true", id="permitted"
        ),
        pytest.param({"engine_is_new": True}, "this run installed Docker", id="a-new-engine"),
    ],
)
def test_docker_is_restarted_by_permission(desired: dict[str, Any], reason: str | None) -> None:
    """For `docker run --gpus`, which pods do not need."""
    planned = plan(PLANNER, RESTART_DUE, default=None, **desired)
    assert names(planned) == (["Restart Docker"] if reason else [])
    assert (reason or "") in str(planned["steps"])
    assert [notice["code"] for notice in planned["notices"]] == (
        [] if reason else ["DOCKER_RESTART_DUE"]
    )


@pytest.mark.parametrize(("restart_ok", "step"), [(False, "Reload"), (True, "Restart")])
@pytest.mark.parametrize("running", [True, False])
def test_docker_and_a_toolkit_that_is_still_to_come(
    *, running: bool, restart_ok: bool, step: str
) -> None:
    """Whether it runs now makes no difference: the role before this one starts it."""
    driver = {key: DONE[key] for key in ("driver", "nvml")}
    node = merge({**DOCKER, **driver}, docker(running=running))
    planned = plan(PLANNER, node, default=None, restart_ok=restart_ok)
    assert names(planned)[-3:] == [
        "Register the NVIDIA runtime",
        f"{step} Docker",
        "Generate the CDI specification",
    ]
    assert bool(planned["notices"]) is not restart_ok


def test_former_runtime_goes_after_the_toolkit_has_come() -> None:
    """Until then, daemon.json names a program of its package."""
    node = merge(DOCKER, {"packages": {"nvidia-container-runtime": {"version": "3.5.0-1"}}})
    steps = names(plan(PLANNER, node, default=None))
    assert steps.index("Install the container toolkit") < steps.index(
        "Remove the package nvidia-container-runtime"
    )


def test_docker_that_does_not_answer_is_refused() -> None:
    assert codes(plan(PLANNER, merge(FRESH, docker(answers=False)), default=None)) == [
        "DOCKER_SILENT"
    ]


@pytest.mark.parametrize(
    ("node", "state"), [(FRESH, "present"), (OURS, "absent")], ids=["present", "absent"]
)
def test_docker_that_tells_no_version_is_refused(node: dict[str, Any], state: str) -> None:
    found = merge(node, docker(**UNVERSIONED))
    assert codes(plan(PLANNER, found, state=state, default=None)) == ["VERSION_UNKNOWN"]


def test_docker_that_is_still_to_come() -> None:
    for found, step in ((TOOLKIT, "Reload Docker"), ({}, "Restart Docker")):
        node = merge(merge(DOCKER, found), docker(installed=False, program=None, flags=[]))
        planned = plan(PLANNER, node, default=None)
        assert [name for name in names(planned) if "Docker" in name] == [step]
        assert planned["data"]["config"] is None


@pytest.mark.parametrize(
    ("version", "driver", "found", "is_named"),
    [
        pytest.param("1.30.14", "systemd", "cgroupfs", True, id="differ"),
        pytest.param("1.30.14", "systemd", "systemd", False, id="same"),
        pytest.param("1.37.1", "systemd", "cgroupfs", False, id="the kubelet asks"),
        pytest.param("1.30.14", None, "cgroupfs", False, id="unknown"),
    ],
)
def test_cgroup_driver_of_docker(
    version: str, driver: str | None, found: str, is_named: bool
) -> None:
    node = merge(docker(cgroup_driver=found), {"kubelet": {"version": version}})
    made = plan(PLANNER, merge(DOCKER, {**node, "cgroup": {"driver": driver}}), default=None)
    assert ("CGROUP_DRIVERS_DIFFER" in [one["code"] for one in made["notices"]]) is is_named


def test_runtime_that_is_a_flag_and_a_key_gets_only_the_default() -> None:
    binary = "nvidia-container-runtime"
    found = {"nvidia": {"type": None, "binary": binary}}
    node = docker(
        flags=[flag("--add-runtime", f"nvidia=/usr/bin/{binary}")],
        runtimes=found,
        config={"runtimes": found},
    )
    made = plan(PLANNER, merge(DOCKER, node), default=None)
    assert codes(made) == []
    assert made["data"]["config"]["merge"] == {"default-runtime": "nvidia"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            docker(flags=[flag("--default-runtime", "runc")]), ["DOCKER_FLAG_CLASH"], id="flag"
        ),
        pytest.param(docker(flags=[flag("--add-runtime", "quiet=runc")]), [], id="merged-flag"),
        pytest.param(
            docker(flags=[flag("--add-runtime", "nvidia=/opt/bin/nvidia-container-runtime")]),
            ["DOCKER_FLAG_CLASH"],
            id="another program",
        ),
        pytest.param(
            docker(flags=[flag("--add-runtime", "nvidia=nvidia-container-runtime")]), [], id="ours"
        ),
        pytest.param(
            docker(config={"outline": {"runtimes": []}}), ["CONFIG_NOT_EDITABLE"], id="a list"
        ),
        pytest.param(
            docker(config={"outline": {"runtimes": {"nvidia": {"Path": ""}}}}),
            ["CONFIG_NOT_EDITABLE"],
            id="another case",
        ),
        pytest.param(docker(config={"error": "line 3"}), ["DOCKER_CONFIG_INVALID"], id="JSON"),
        pytest.param(
            {"kubelet": {"endpoint": "unix:///run/frakti.sock"}},
            ["ENGINE_UNSUPPORTED"],
            id="engine",
        ),
    ],
)
def test_docker_is_refused(changes: dict[str, Any], expected: list[str]) -> None:
    assert codes(plan(PLANNER, merge(FRESH, changes), default=None)) == expected


def toolkit(version: str | None, *, held: bool, **changes: Any) -> dict[str, Any]:
    """A node that has everything, with the toolkit in another version; None: only its library."""
    there = PACKAGES if version else ("libnvidia-container1",)
    packages = {name: value for name, value in DONE["packages"].items() if name not in PACKAGES} | {
        name: {"version": f"{version or '1.17.8'}-1", "held": held} for name in there
    }
    found = {**DONE, "toolkit": {**DONE["toolkit"], "version": version}, "packages": packages}
    return merge({**found, "ours": {**found["ours"], "packages": {}}}, changes)


def noted(version: str, before: str | None = None) -> dict[str, Any]:
    """The role has noted that it installs the toolkit."""
    return record(PLANNER, dict.fromkeys(PACKAGES, f"{version}-1"), before)


THEIR_SOURCE = {
    **{"path": "/etc/apt/sources.list", "url": "https://mirror.example", "suite": "/"},
    **{"section": "", "unsigned": "", "credentials": False},
}
NO_SPECIFICATION = {"devices": []}


@pytest.mark.parametrize(
    ("node", "state", "refusals"),
    [
        pytest.param(FRESH, "present", ["CONFIG_NOT_EDITABLE"], id="to-be-edited"),
        pytest.param(NVIDIA, "present", [], id="nothing-to-do"),
        pytest.param(OURS, "absent", ["CONFIG_NOT_EDITABLE"], id="to-be-given-back"),
        pytest.param(NVIDIA, "absent", [], id="nothing-to-give-back"),
    ],
)
def test_a_file_that_docker_reads_and_nobody_can_edit(
    node: dict[str, Any], state: str, refusals: list[str]
) -> None:
    twice = f'{DAEMON_JSON}, line 3, column 3: key "runtimes" appears twice'
    node = merge(node, docker(config={"obstacle": twice}))
    planned = plan(PLANNER, node, state=state, default=None)
    assert codes(planned) == refusals
    assert all(twice in one["message"] for one in planned["refusals"])


@pytest.mark.parametrize(
    ("node", "desired", "notices", "refusals"),
    [
        pytest.param(toolkit("1.17.8", held=True), {}, ["TOOLKIT_HELD"], [], id="held"),
        pytest.param(
            toolkit("1.18.0", held=True, cdi=NO_SPECIFICATION),
            {},
            ["TOOLKIT_HELD"],
            [],
            id="writes-CDI",
        ),
        pytest.param(
            toolkit("1.17.8", held=True, cdi=NO_SPECIFICATION),
            {},
            [],
            ["TOOLKIT_TOO_OLD"],
            id="writes-no-CDI",
        ),
        pytest.param(
            toolkit("1.17.8", held=True, cdi=NO_SPECIFICATION),
            {"cdi": False},
            ["TOOLKIT_HELD"],
            [],
            id="CDI-not-wanted",
        ),
        pytest.param(
            toolkit("1.11.0", held=True),
            {"cdi": False},
            [],
            ["TOOLKIT_TOO_OLD"],
            id="links-nothing",
        ),
        pytest.param(toolkit(None, held=True), {}, [], ["TOOLKIT_TOO_OLD"], id="none"),
        pytest.param(toolkit("1.21.0", held=True), {}, ["TOOLKIT_KEPT"], [], id="newer"),
        pytest.param(toolkit("1.20.1~rc.1", held=True), {}, ["TOOLKIT_HELD"], [], id="candidate"),
        pytest.param(
            toolkit("1.21.0", held=False), {}, ["TOOLKIT_KEPT", "PACKAGES_UNHELD"], [], id="loose"
        ),
        pytest.param(
            toolkit("1.19.1", held=True, ours=noted("1.18.0")),
            {},
            ["TOOLKIT_HELD"],
            [],
            id="exchanged-since-we-installed-it",
        ),
        pytest.param(toolkit("1.20.1", held=True), {}, [], [], id="the-same"),
        pytest.param(
            toolkit("1.17.8", held=False), {}, ["TOOLKIT_KEPT", "PACKAGES_UNHELD"], [], id="older"
        ),
        pytest.param(
            toolkit("1.11.0", held=False),
            {"cdi": False},
            ["PACKAGES_UNHELD"],
            ["TOOLKIT_TOO_OLD"],
            id="too-old",
        ),
    ],
)
def test_toolkit_of_the_admin_stays(
    node: dict[str, Any], desired: dict[str, Any], notices: list[str], refusals: list[str]
) -> None:
    planned = plan(PLANNER, node, **desired)
    assert not any("toolkit" in name for name in names(planned))
    assert [notice["code"] for notice in planned["notices"]] == notices
    assert codes(planned) == refusals


ADD = [
    "Install python3-debian for the toolkit repository",
    "Add the repository of the container toolkit",
]
INSTALL = ["Install the container toolkit"]
HOLD = ["Hold the container toolkit"]


@pytest.mark.parametrize(
    ("node", "steps", "change_held", "notices"),
    [
        pytest.param(
            toolkit("1.19.1", held=True, ours=noted("1.19.1"), package_sources=[THEIR_SOURCE]),
            INSTALL + HOLD,
            True,
            [],
            id="we-hold-it",
        ),
        pytest.param(
            toolkit("1.17.8", held=False), ADD + INSTALL + HOLD, False, [], id="permitted"
        ),
        pytest.param(
            toolkit("1.17.8", held=False, package_sources=[THEIR_SOURCE]),
            INSTALL + HOLD,
            False,
            [],
            id="from-a-source-of-the-admin",
        ),
        pytest.param(
            toolkit("1.20.1", held=False), [], False, ["PACKAGES_UNHELD"], id="of-the-admin"
        ),
        pytest.param(
            toolkit("1.20.1", held=False, repositories=repository("container-toolkit")),
            [],
            False,
            ["PACKAGES_UNHELD"],
            id="of-the-admin-from-our-repository",
        ),
        pytest.param(
            toolkit("1.20.1", held=False, ours=noted("1.20.1")), HOLD, True, [], id="hold-is-gone"
        ),
    ],
)
def test_only_what_is_ours_is_held(
    node: dict[str, Any], steps: list[str], change_held: bool, notices: list[str]
) -> None:
    """An upgrade ends a hold: apt forgets it, and a lock of dnf names the former version."""
    planned = plan(PLANNER, node, upgrade_ok=True)
    assert planned["refusals"] == []
    assert [notice["code"] for notice in planned["notices"]] == notices
    assert names(planned) == steps
    assert planned["data"]["change_held"] is change_held
    assert len(planned["data"]["hold"]) == (len(PACKAGES) if change_held or steps else 0)


def test_what_was_there_before_is_noted() -> None:
    first = plan(PLANNER, toolkit("1.17.8", held=False), upgrade_ok=True)["data"]["packages_record"]
    assert first == {
        "path": "/var/lib/metal-gpu/packages/nvidia_container_runtime.json",
        "packages": {name: {"version": "1.20.1-1", "before": "1.17.8-1"} for name in PACKAGES},
    }
    node = toolkit("1.19.1", held=True, ours=noted("1.19.1", "1.17.8-1"))
    again = plan(PLANNER, node)["data"]["packages_record"]
    assert again == first  # not what we have put in its place


NO_DRIVER = {key: VIRGIN[key] for key in ("driver", "nvml", "device_files", "cdi")}


def test_without_a_driver_nothing_is_asked_of_it() -> None:
    """An image in preparation: nvidia-ctk would end with an error where there is no device."""
    node = merge({**DONE, **NO_DRIVER}, {"toolkit": {"char_dev_rules": []}})
    planned = plan(PLANNER, node)
    assert names(planned) == ["Create links in /dev/char at boot"]
    expected = plan(PLANNER, node, driver_is_planned=True)  # as in check mode
    links = "Create links in /dev/char now"
    assert names(expected) == [*names(planned), links, "Generate the CDI specification"]
    assert expected["notices"] == []
    with_driver = {**node, **{key: DONE[key] for key in NO_DRIVER}, "cdi": VIRGIN["cdi"]}
    planned = plan(PLANNER, {**with_driver, "toolkit": DONE["toolkit"]})
    assert (names(planned), planned["notices"]) == (["Generate the CDI specification"], [])
    device = {"path": "/dev/nvidia0", "major": 195, "linked": False}
    planned = plan(PLANNER, {**DONE, "device_files": [device]})
    assert names(planned) == ["Create links in /dev/char now"]


ABSENT_FROM_DOCKER = [
    "Stop Docker from using the NVIDIA runtime",
    "Reload Docker",
    "Remove the NVIDIA runtime from daemon.json",
]
ABSENT_TOOLKIT = [
    "Remove the container toolkit",
    "Remove the files of the container toolkit",
    "Remove the repository of the container toolkit",
    "Delete the record of the toolkit packages",
]


NOTHING_ELSE = {"files": [], "edits": []}


@pytest.mark.parametrize(
    ("node", "steps", "notices"),
    [
        pytest.param(OURS, ABSENT_FROM_DOCKER + ABSENT_TOOLKIT, [], id="docker"),
        pytest.param(
            merge(OURS, docker(running=False)),
            ABSENT_FROM_DOCKER[2:] + ABSENT_TOOLKIT,
            [],
            id="docker-is-down",
        ),
        pytest.param(
            merge(OURS, docker(made_with={"runc": ["old"], "nvidia": ["late"]})),
            ABSENT_FROM_DOCKER + ABSENT_TOOLKIT,
            ["CONTAINERS_OF_RUNTIME"],
            id="containers-of-the-runtime",
        ),
        pytest.param(
            without_nulls(merge(NVIDIA, {"ours": {"packages": {PLANNER: None}}})),
            [],
            ["TOOLKIT_OF_ADMIN"],
            id="registered-by-somebody-else",
        ),
        pytest.param(
            without_nulls(merge(DONE, {"ours": {**NOTHING_ELSE, "packages": {PLANNER: None}}})),
            [],
            ["TOOLKIT_OF_ADMIN"],
            id="rule",
        ),
        pytest.param(
            toolkit("1.20.1", held=True, ours={**noted("1.20.1", "1.17.8-1"), **NOTHING_ELSE}),
            [
                "Release the hold on the container toolkit",
                "Delete the record of the toolkit packages",
            ],
            ["TOOLKIT_OF_ADMIN"],
            id="there-before-in-another-version",
        ),
        pytest.param(
            toolkit(
                "1.20.1",
                held=False,
                ours=NOTHING_ELSE,
                repositories=repository("container-toolkit"),
            ),
            ["Remove the repository of the container toolkit"],
            ["TOOLKIT_OF_ADMIN"],
            id="from-our-repository-by-hand",
        ),
        pytest.param(DOCKER, [], [], id="twice"),
        pytest.param(
            merge(DOCKER, {"repositories": repository("container-toolkit")}),
            ["Remove the repository of the container toolkit"],
            [],
            id="cut-before-the-repository",
        ),
    ],
)
def test_absent(node: dict[str, Any], steps: list[str], notices: list[str]) -> None:
    planned = plan(PLANNER, node, state="absent")
    assert planned["refusals"] == []
    assert names(planned) == steps
    assert [notice["code"] for notice in planned["notices"]] == notices


@pytest.mark.parametrize(
    ("changed", "expected", "default_runtime"),
    [
        pytest.param(
            [(["default-runtime"], None), (["runtimes", "nvidia", "path"], None)],
            {
                "remove": [["runtimes", "nvidia", "path"]],
                "merge": {"runtimes": {}, "default-runtime": "runc"},
            },
            "runc",
            id="nothing-was-there",
        ),
        pytest.param(
            [(["default-runtime"], "quiet"), (["runtimes", "nvidia", "path"], "/opt/old")],
            {
                "remove": [],
                "merge": {
                    "runtimes": {"nvidia": {"path": "/opt/old"}},
                    "default-runtime": "quiet",
                },
            },
            "quiet",
            id="an-owner",
        ),
        pytest.param(
            [(["features", "cdi"], None)],
            {"remove": [], "merge": {"runtimes": {}}},
            "nvidia",
            id="only-CDI",
        ),
    ],
)
def test_docker_is_told_what_was_before(
    changed: list[tuple[list[str], Any]], expected: dict[str, Any], default_runtime: str
) -> None:
    planned = plan(PLANNER, merge(NVIDIA, edits(DAEMON_JSON, *changed)), state="absent")
    assert planned["data"]["way_back"] == {"path": DAEMON_JSON, **expected}
    assert planned["data"]["expected"]["default_runtime"] == default_runtime


@pytest.mark.parametrize(
    ("before", "remove", "name"),
    [pytest.param(None, [DEFAULT_KEY], None, id="nothing"), ("runc", [], "runc")],
)
def test_default_of_containerd_goes_back(
    before: str | None, remove: list[list[str]], name: str | None
) -> None:
    node = merge(
        merge(DONE, {"engines": {"containerd": {"default_runtime": "nvidia"}}}),
        edits("/etc/containerd/config.toml", (DEFAULT_KEY, before)),
    )
    planned = plan(PLANNER, node, default=None)
    assert names(planned) == ["Register the NVIDIA runtime", "Restart containerd"]
    config = planned["data"]["config"]
    assert config["remove"] == remove
    containerd = config["merge"]["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]
    assert containerd.get("default_runtime_name") == name


def test_default_of_somebody_else_stays_in_containerd() -> None:
    node = merge(DONE, {"engines": {"containerd": {"default_runtime": "nvidia"}}})
    assert plan(PLANNER, node, default=None)["steps"] == []


@pytest.mark.parametrize(
    ("path", "kind", "is_removed"),
    [
        ("/var/run/cdi/nvidia.yaml", "nvidia.com/gpu", True),
        ("/run/cdi/nvidia.yaml", "nvidia.com/gpu", True),
        (
            "/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json",
            "k8s.device-plugin.nvidia.com/gpu",
            True,
        ),
        pytest.param("/var/run/cdi/nvidia.yaml", "example.com/nic", False, id="not a GPU"),
        pytest.param("/var/run/cdi/nvidia.yaml", None, False, id="not readable"),
        pytest.param(
            "/var/run/cdi/k8s.device-plugin.nvidia.com-notes.yaml", "site/x", False, id="name only"
        ),
        pytest.param(
            "/etc/cdi/k8s.device-plugin.nvidia.com-gpu.json",
            "k8s.device-plugin.nvidia.com/gpu",
            False,
            id="in /etc",
        ),
        pytest.param("/etc/cdi/nvidia.yaml", "nvidia.com/gpu", False, id="written by hand"),
    ],
)
def test_teardown_removes_what_toolkit_and_plugin_have_written(
    path: str, kind: str | None, is_removed: bool
) -> None:
    cdi = {"spec_files": [path], "kinds": {path: kind}}
    node = {**merge(DONE, {"repositories": repository("container-toolkit")}), "cdi": cdi}
    files = plan(PLANNER, node, state="absent")["data"]["files"]
    assert (path in files) is is_removed


CONFIG = "/etc/nvidia-container-runtime/config.toml"
BASE = "nvidia-container-toolkit-base"


@pytest.mark.parametrize(
    ("observed", "recorded", "is_removed"),
    [
        pytest.param("5d41", "5d41", True, id="as the package created it"),
        pytest.param("beef", "5d41", False, id="changed since"),
        pytest.param("5d41", None, False, id="there before, or never recorded"),
        pytest.param(None, "5d41", False, id="unreadable"),
        pytest.param(None, None, False, id="unreadable and never recorded"),
    ],
)
def test_teardown_removes_only_the_configuration_that_the_package_created(
    observed: str | None, recorded: str | None, is_removed: bool
) -> None:
    node = merge(DONE, {"toolkit": {"config_sha256": observed}})
    base = node["ours"]["packages"][PLANNER]["packages"][BASE]
    node["ours"]["packages"][PLANNER]["packages"][BASE] = {**base, "config_sha256": recorded}
    planned = plan(PLANNER, node, state="absent")
    assert (CONFIG in planned["data"]["files"]) is is_removed
    assert planned["data"]["purge"] is is_removed  # dpkg would remove a file of an older package
    # A run that was cut off after the packages.
    gone = dict.fromkeys(PACKAGES)
    cut = without_nulls(merge(node, {"packages": gone}))
    cut["toolkit"]["config_sha256"] = observed
    assert (CONFIG in plan(PLANNER, cut, state="absent")["data"]["files"]) is is_removed


def test_teardown_without_a_configuration() -> None:
    planned = plan(
        PLANNER, merge(DONE, {"toolkit": {"config": None, "config_sha256": None}}), state="absent"
    )
    assert planned["notices"] == []
    assert planned["data"]["purge"] is True


@pytest.mark.parametrize(
    ("node", "is_recorded"),
    [
        pytest.param(VIRGIN, True, id="not there"),
        pytest.param(
            merge(VIRGIN, {"toolkit": {"config": CONFIG, "config_sha256": "5d41"}}),
            False,
            id="there before",
        ),
        pytest.param(
            toolkit("1.19.1", held=True, ours=noted("1.19.1")), False, id="never recorded"
        ),
        pytest.param(
            toolkit(
                "1.19.1",
                held=True,
                ours=merge(
                    noted("1.19.1"),
                    {"packages": {PLANNER: {"packages": {BASE: {"config_sha256": "5d41"}}}}},
                ),
            ),
            True,
            id="upgrade",
        ),
        pytest.param(
            toolkit(
                "1.19.1",
                held=True,
                ours=merge(
                    noted("1.19.1"),
                    {"packages": {PLANNER: {"packages": {BASE: {"config_sha256": "beef"}}}}},
                ),
            ),
            False,
            id="upgrade after a change",
        ),
    ],
)
def test_only_a_configuration_that_the_package_creates_is_recorded(
    node: dict[str, Any], is_recorded: bool
) -> None:
    """Upstream's package adds new keys to an existing file."""
    planned = plan(PLANNER, node)
    assert "Install the container toolkit" in names(planned)
    created = planned["data"]["packages_record"].get("created")
    assert created == ({BASE: CONFIG} if is_recorded else None)


def test_a_specification_that_nobody_can_read() -> None:
    """The toolkit's is written again; another one is the admin's."""
    ours, theirs = "/var/run/cdi/nvidia.yaml", "/etc/cdi/nic.yaml"
    errors = {ours: f"{ours}, line 3, column 1: bad", theirs: f"{theirs}: worse"}
    planned = plan(PLANNER, merge(DONE, {"cdi": {"errors": errors, "devices": []}}))
    (step,) = planned["steps"]
    assert (step["name"], step["reason"]) == ("Generate the CDI specification", errors[ours])
    assert [notice["code"] for notice in planned["notices"]] == ["CDI_FILE_INVALID"]
    assert errors[theirs] in planned["notices"][0]["message"]


GONE = {"exists": False, "executable": False}
LOCKED = {"exists": True, "executable": False}


@pytest.mark.parametrize(
    ("changes", "evidence"),
    [
        pytest.param(
            {"nvidia-container-runtime": GONE},
            "/usr/bin/nvidia-container-runtime is missing, although the package manager lists "
            "nvidia-container-toolkit-base as",
            id="removed",
        ),
        pytest.param(
            {"nvidia-container-runtime": LOCKED, "nvidia-container-runtime-hook": GONE},
            "/usr/bin/nvidia-container-runtime is not executable, "
            "/usr/bin/nvidia-container-runtime-hook is missing, although the package manager lists "
            "nvidia-container-toolkit-base and nvidia-container-toolkit as",
            id="chmod 644, and another package",
        ),
    ],
)
def test_a_runtime_that_cannot_be_started(changes: dict[str, Any], evidence: str) -> None:
    node = merge(DONE, {"toolkit": {"programs": changes}})
    (refusal,) = plan(PLANNER, node)["refusals"]
    assert refusal["code"] == "RUNTIME_UNUSABLE"
    assert evidence in refusal["message"]
    assert "apt-get install --reinstall nvidia-container-toolkit-base" in refusal["remedy"]


@pytest.mark.parametrize(
    ("changes", "desired"),
    [
        pytest.param({"packages": {"nvidia-container-toolkit-base": None}}, {}, id="not installed"),
        pytest.param(
            {"repositories": repository("container-toolkit")},
            {"version": "1.21.0"},
            id="another version comes",
        ),
    ],
)
def test_what_is_about_to_be_installed_is_not_missing(
    changes: dict[str, Any], desired: dict[str, Any]
) -> None:
    node = merge(merge(DONE, {"toolkit": {"programs": {"nvidia-ctk": GONE}}}), changes)
    node["packages"] = {name: found for name, found in node["packages"].items() if found}
    assert plan(PLANNER, node, **desired)["refusals"] == []


def test_an_old_toolkit_has_no_hook_of_cdi() -> None:
    node = merge(toolkit("1.17.8", held=True), {"toolkit": {"programs": {"nvidia-cdi-hook": GONE}}})
    assert plan(PLANNER, node)["refusals"] == []


def test_a_runtime_that_another_tool_has_taken_out_is_registered_again() -> None:
    """Though containerd runs with it until its next start."""
    runc = {"runc": DONE["engines"]["containerd"]["runtimes"]["runc"]}
    node = copy.deepcopy(DONE)
    node["engines"]["containerd"]["runtimes"] = runc
    node["engines"]["containerd"]["changed_since_start"] = ["/etc/containerd/config.toml"]
    planned = plan(PLANNER, node)
    assert names(planned) == ["Register the NVIDIA runtime", "Restart containerd"]
    assert planned["steps"][0]["reason"] == "containerd has no runtime nvidia"


def test_garbage_in_the_file_of_an_engine_that_runs_on_is_refused() -> None:
    error = "/etc/containerd/config.toml, line 1, column 1: Invalid statement"
    changed = {"config": {"error": error}, "runtimes": {}, "cri_enabled": None}
    for planner in ("containerd", PLANNER):
        node = merge(DONE, {"engines": {"containerd": {**changed, "default_runtime": None}}})
        (refusal,) = plan(planner, node)["refusals"]
        assert refusal["code"] == "CONTAINERD_CONFIG_INVALID"
        assert error in refusal["message"]


RECORD = Path(__file__).parents[5] / "recorded" / "debian_driver.yml"
DEBIAN = yaml.safe_load(RECORD.read_text())["modules"]
OPEN = {"driver": {"module_files": [f"updates/dkms/{DEBIAN['nvidia-open-kernel-dkms']}.ko.xz"]}}
SKIPPED = {"toolkit": {"cdi_skipped": True}}
NO_CDI_YET = {"cdi": {"spec_files": [], "devices": []}}
BY_HAND = {"cdi": {"spec_files": ["/etc/cdi/nvidia.yaml"]}}
DROP_IN, WRITE = "Extend the condition of the CDI service", "Generate the CDI specification"
REMOVE_DROP_IN = "Restore the condition of the CDI service"


@pytest.mark.parametrize(
    ("changes", "desired", "steps"),
    [
        pytest.param(OPEN, {}, [DROP_IN, WRITE], id="Debian's open module"),
        pytest.param(
            {"driver": {"module_files": ["updates/dkms/nvidia-tesla-535.ko"]}},
            {},
            [DROP_IN, WRITE],
            id="Debian's module for Tesla",
        ),
        pytest.param(
            {"driver": {"module_files": ["updates/dkms/nvidia-current.ko"]}},
            {},
            [],
            id="Debian's proprietary module, which the unit knows",
        ),
        pytest.param(
            {
                "driver": {
                    "module_files": ["updates/dkms/nvidia.ko", *OPEN["driver"]["module_files"]]
                }
            },
            {},
            [],
            id="two modules, one by its own name",
        ),
        pytest.param(merge(SKIPPED, NO_CDI_YET), {}, [DROP_IN, WRITE], id="skipped, module loaded"),
        pytest.param(
            merge(SKIPPED, {"driver": {"module_version": None}}),
            {},
            [],
            id="skipped, and no module is loaded",
        ),
        pytest.param(merge(OPEN, BY_HAND), {}, [], id="written by hand, to stay"),
        pytest.param(
            merge(merge(OPEN, BY_HAND), {"cdi": {"devices": []}}),
            {},
            [DROP_IN, WRITE],
            id="written by hand, and nothing in it",
        ),
        pytest.param(merge(OPEN, SKIPPED), {"cdi": False}, [], id="no CDI wanted"),
        pytest.param(
            merge(OPEN, {"ours": {"files": [CDI_DROP_IN["path"]]}}), {}, [], id="accepted already"
        ),
        pytest.param(
            {"ours": {"edits": [], "files": [CDI_DROP_IN["path"]], "packages": {PLANNER: None}}},
            {"state": "absent"},
            [REMOVE_DROP_IN],
            id="absent",
        ),
    ],
)
def test_cdi_service_that_would_be_skipped(
    changes: dict[str, Any], desired: dict[str, Any], steps: list[str]
) -> None:
    planned = plan(PLANNER, without_nulls(merge(DONE, changes)), **desired)
    assert planned["refusals"] == []
    assert names(planned) == steps


@pytest.mark.parametrize(
    ("file", "runs"),
    [
        *((f"updates/dkms/{name}.ko.xz", True) for name in DEBIAN.values()),
        ("updates/dkms/nvidia.ko", True),
        ("updates/dkms/nvidia-fs.ko", False),
        ("kernel/drivers/video/fbdev/nvidia/nvidiafb.ko", False),
    ],
)
def test_drop_in_runs_the_cdi_service_with_every_name_of_the_module(
    tmp_path: Path, file: str, runs: bool
) -> None:
    """Run by a real shell, on a machine where no module is loaded."""
    lines = CDI_DROP_IN["block"].replace("\\\n", " ")
    reset, condition = re.findall(r"^ExecCondition=(.*)$", lines, re.MULTILINE)
    assert reset == ""
    modules = tmp_path / "modules.dep"
    modules.write_text(f"{file}:\n")
    command = condition.replace("/lib/modules/%v/modules.dep", str(modules))
    command = command.replace("/proc/driver", str(tmp_path / "proc"))
    assert (subprocess.run(command, shell=True, check=False).returncode == 0) is runs


@pytest.mark.parametrize(
    ("path", "major", "expected"),
    [
        pytest.param(
            "/var/run/cdi/nvidia.yaml",
            509,
            "in the CDI specification, /dev/nvidia-uvm has the major number 509, "
            "and the driver has 510",
            id="another",
        ),
        pytest.param("/var/run/cdi/nvidia.yaml", 510, None, id="that of the driver"),
        pytest.param("/etc/cdi/nvidia.yaml", 509, None, id="not a file of the service"),
    ],
)
def test_a_driver_that_has_got_another_major_number(
    path: str, major: int, expected: str | None
) -> None:
    """The file in /dev is corrected, or a boot has created it again; the specification stays."""
    numbers = {"cdi": {"majors": {path: {"/dev/nvidia-uvm": major}}}}
    planned = plan(PLANNER, merge(DONE, numbers))
    reasons = [step["reason"] for step in planned["steps"] if step["slug"] == "cdi"]
    assert reasons == [expected] * bool(expected)
    is_of_others = path.startswith("/etc/")
    notices = [notice["code"] for notice in planned["notices"]]
    assert notices == ["CDI_FILE_OUTDATED"] * is_of_others


def test_specification_is_generated_after_the_file_is_corrected() -> None:
    """The generator takes the number of the file, which is still the former one."""
    numbers = {"cdi": {"majors": {"/var/run/cdi/nvidia.yaml": {"/dev/nvidia-uvm": 510}}}}
    node = merge(merge(DONE, numbers), {"device_majors": {"nvidia-uvm": 509}})
    assert plan(PLANNER, node)["steps"] == []


SERVICES, ADMINS = "/var/run/cdi/nvidia.yaml", "/etc/cdi/admin.yaml"
LOADED = DONE["driver"]["module_version"]


def cdi_reasons_and_notices(node: dict[str, Any]) -> tuple[list[str], list[str]]:
    planned = plan(PLANNER, node)
    steps = [step["reason"] for step in planned["steps"] if step["slug"] == "cdi"]
    return steps, [one["message"] for one in planned["notices"] if "CDI" in one["code"]]


@pytest.mark.parametrize(
    ("path", "versions", "steps", "notices"),
    [
        pytest.param(SERVICES, [LOADED], 0, 0, id="of this driver"),
        pytest.param(SERVICES, ["535.261.03", LOADED], 0, 0, id="of this driver, too"),
        pytest.param(SERVICES, ["535.261.03"], 1, 0, id="of another driver"),
        pytest.param(ADMINS, ["535.261.03"], 0, 1, id="of another driver, in a file of others"),
    ],
)
def test_specification_of_another_driver(
    path: str, versions: list[str], steps: int, notices: int
) -> None:
    """After an update of the driver: the libraries that it names are gone."""
    found = cdi_reasons_and_notices(merge(DONE, {"cdi": {"drivers": {path: versions}}}))
    assert tuple(map(len, found)) == (steps, notices)
    said = f"the libraries are those of driver 535.261.03, but the driver is {LOADED}"
    assert all(said in text for texts in found for text in texts)


def test_specification_is_not_compared_while_no_driver_works() -> None:
    """Between an update and the reboot, the generator would fail."""
    broken = {"nvml": VIRGIN["nvml"], "cdi": {"drivers": {SERVICES: ["535.261.03"]}}}
    assert cdi_reasons_and_notices({**merge(DONE, broken), "nvml": VIRGIN["nvml"]}) == ([], [])


def split_node(mode: str | None, names: list[str], path: str = SERVICES) -> dict[str, Any]:
    devices = DONE["nvml"]["devices"]
    reports = [
        {
            "pci_address": gpu["pci_address"],
            "mig": mode if number == 0 else "Disabled",
            "mig_instances": None,
            "virtualization": None,
        }
        for number, gpu in enumerate(devices)
    ]
    names = [f"nvidia.com/gpu={name}" for name in names]
    every = [*names, "nvidia.com/gpu=1", "nvidia.com/gpu=all"]
    named = {path: [*names, "nvidia.com/gpu=all"]}
    changes = {"health": {"gpus": reports}, "cdi": {"devices": every, "names": named}}
    return merge(DONE, changes)


GONE_UUID = "GPU-11111111-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("node", "steps", "notices"),
    [
        pytest.param(split_node("Disabled", ["0"]), [], 0, id="no MIG"),
        pytest.param(split_node("Enabled", ["0:0", "0:1"]), [], 0, id="parts"),
        pytest.param(split_node("Enabled", ["0"]), [], 1, id="split since"),
        pytest.param(split_node("Enabled", ["0", "0:0"], ADMINS), [], 1, id="in a file of others"),
        pytest.param(split_node("Enabled", []), [], 1, id="without an instance"),
        pytest.param(split_node("Enabled", ["MIG-5c89852c"]), [], 0, id="parts by their UUIDs"),
        pytest.param(split_node("Disabled", []), ["specification lacks "], 0, id="missing"),
        pytest.param(split_node("Disabled", ["0:0"]), ["is in parts (0:0)"], 0, id="whole again"),
        pytest.param(split_node(None, ["0:0"]), [], 0, id="mode unknown"),
        pytest.param(
            split_node("Disabled", ["0", GONE_UUID]), [f"{GONE_UUID} is no GPU"], 0, id="replaced"
        ),
        pytest.param(
            split_node("Disabled", ["0", GONE_UUID], ADMINS), [], 0, id="verify says it of others"
        ),
    ],
)
def test_specification_of_gpus_as_they_were(
    node: dict[str, Any], steps: list[str], notices: int
) -> None:
    found, said = cdi_reasons_and_notices(node)
    assert len(found) == len(steps)
    assert all(words in reason for words, reason in zip(steps, found, strict=True))
    assert len(said) == notices


def instances(count: int) -> list[dict[str, Any]]:
    """Return the first instances of a GPU, whose files the driver does not list."""
    numbers = [{"index": one, "gpu_instance": 7 + one} for one in range(count)]
    return [{**one, "compute_instance": 0, "files": []} for one in numbers]


def with_instances(*counts: int | None, **cdi: Any) -> dict[str, Any]:
    """Return a node with GPUs in MIG mode, and a CDI component that says what its files list."""
    devices = DONE["nvml"]["devices"]
    assert len(counts) == len(devices)
    reports = [
        {
            "pci_address": gpu["pci_address"],
            "mig": "Disabled" if count == -1 else "Enabled",
            "mig_instances": None if count is None else instances(max(count, 0)),
            "virtualization": None,
        }
        for gpu, count in zip(devices, counts, strict=True)
    ]
    return merge(DONE, {"health": {"gpus": reports}, "cdi": {"devices": [], "names": {}, **cdi}})


OLD_DRIVER: dict[str, Any] = {
    "devices": ["nvidia.com/gpu=all"],
    "drivers": {SERVICES: ["535.261.03"]},
}


@pytest.mark.parametrize(
    ("node", "steps", "notices"),
    [
        pytest.param(with_instances(0, 0), [], ["CDI_MIG_EMPTY"], id="after a reboot"),
        pytest.param(with_instances(0, 0, **OLD_DRIVER), [], ["CDI_MIG_EMPTY"], id="outdated"),
        pytest.param(with_instances(2, 0), ["cdi"], [], id="an instance"),
        pytest.param(with_instances(-1, 0), ["cdi"], [], id="a whole GPU"),
        pytest.param(with_instances(None, 0), ["cdi"], [], id="not reported"),
        pytest.param(
            merge(with_instances(0, 0), OPEN), [], ["CDI_MIG_EMPTY"], id="a service to extend"
        ),
        pytest.param(
            with_instances(0, 0, devices=["nvidia.com/gpu=all"]), [], [], id="nothing to generate"
        ),
    ],
)
def test_without_instances_nothing_is_generated(
    node: dict[str, Any], steps: list[str], notices: list[str]
) -> None:
    """The generator would fail on a node that only waits for its instances."""
    planned = plan(PLANNER, node)
    assert planned["refusals"] == []
    assert [step["slug"] for step in planned["steps"]] == steps
    assert [one["code"] for one in planned["notices"] if "MIG" in one["code"]] == notices
