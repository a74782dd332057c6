# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers that got their GPUs by the hook lose them when systemd reloads its units."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components.planning import needs_users
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    DOCKER,
    DONE,
    merge,
    plan,
)

POD = {"pid": 7, "command": "python", "pod": "2f1e"}
HOST = {"pid": 8, "command": "nvidia-persistenced", "pod": None}
TRAINER = {"id": "1", "name": "trainer", "of_pod": False, "gpus": True, "gpus_by_hook": True}
DIGITS = {"id": "3", "name": "digits", "of_pod": False, "gpus": True, "gpus_by_hook": False}
# Beside one that has ended, and has no GPUs to lose.
MADE = {"made_with": {"nvidia": ["digits", "ended"]}, "containers": [DIGITS]}
OTHER = {"id": "2", "name": "registry", "of_pod": False, "gpus": False, "gpus_by_hook": False}
UNLINKED = {
    "device_files": [{**one, "linked": False} for one in DONE["device_files"]],
    "device_users": [POD, HOST],
}
OLD = {"toolkit": {"version": "1.17.8"}, "packages": {
    name: {"version": "1.17.8-1", "held": False}
    for name in DONE["packages"] if "nvidia-container" in name
}}  # fmt: skip


def by_containerd(default: str, *, systemd: bool = True) -> dict[str, Any]:
    handler = {"type": "io.containerd.runc.v2", "binary": "x", "systemd_cgroup": systemd}
    return {
        "engines": {"containerd": {"default_runtime": default, "runtimes": {"nvidia": handler}}}
    }


def by_docker(cgroups: str, **engine: Any) -> dict[str, Any]:
    return {"engines": {"docker": {"cgroup_driver": cgroups, **engine}}}


BY_HOOK = by_containerd("nvidia")
WITHOUT_CDI = {"engines": {"containerd": {"cdi_enabled": False}}}
HOOK = {"path": "/h.json", "program": "nvidia-container-runtime-hook", "error": None}


def by_crio(default: str, **engine: Any) -> dict[str, Any]:
    found = {"running": True, "default_runtime": default, "hooks": [], **engine}
    return {"engines": {"crio": found, "containerd": {"running": False}}}


NVIDIA = by_docker("systemd", default_runtime="nvidia", **MADE)
DROP_IN = {"ours": {"files": ["/etc/systemd/system/kubelet.service.d/99-metal-gpu.conf"]}}


PERMITTED = {
    "nvidia_container_runtime": {"upgrade_ok": True, "restart_ok": True},
    "nvidia_driver": {"reboot_ok": True},
}


def notices(planner: str, *changes: Any, base: Any = DONE, **desired: Any) -> list[str]:
    node = base
    for change in changes:
        node = merge(node, change)
    permitted = PERMITTED.get(planner, {})
    made = plan(planner, node, **permitted, **desired)
    assert made["refusals"] == []
    return [one["message"] for one in made["notices"] if one["code"] == "GPUS_LOST_BY_RELOAD"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param([by_containerd("nvidia")], ["pod 2f1e (python)"], id="default runtime"),
        pytest.param([by_containerd("runc")], [], id="by CDI"),
        pytest.param([by_containerd("nvidia", systemd=False)], [], id="cgroupfs"),
        pytest.param(
            [by_containerd("runc"), WITHOUT_CDI], ["pod 2f1e (python)"], id="by RuntimeClass"
        ),
        pytest.param(
            [by_containerd("runc", systemd=False), WITHOUT_CDI], [],
            id="by RuntimeClass, with cgroupfs",
        ),
        pytest.param([by_containerd("nvidia"), {"device_users": [HOST]}], [], id="no pod"),
        pytest.param(
            [by_docker("systemd", default_runtime="runc", **MADE)],
            ["digits"], id="a container of Docker",
        ),
        pytest.param([NVIDIA], ["digits, pod 2f1e (python)"], id="Docker's default runtime"),
        pytest.param(
            [by_docker("systemd", default_runtime="runc", containers=[TRAINER, OTHER])],
            ["trainer"], id="docker run --gpus",
        ),
        pytest.param(
            [by_docker("systemd", default_runtime="runc", containers=[TRAINER],
                       made_with={"nvidia": ["trainer"]})],
            ["trainer"], id="docker run --gpus with the runtime",
        ),
        pytest.param(
            [by_docker("cgroupfs", default_runtime="runc", containers=[TRAINER])], [],
            id="docker run --gpus, with cgroupfs",
        ),
        pytest.param(
            [by_docker("cgroupfs", default_runtime="nvidia", **MADE)],
            [], id="Docker with cgroupfs",
        ),
    ],
)  # fmt: skip
def test_containers_that_lose_their_gpus(changes: list[Any], expected: list[str]) -> None:
    found = notices("nvidia_container_runtime", UNLINKED, OLD, *changes)
    assert len(found) == len(expected)
    assert all(
        f"may lose them: {names}; " in text for names, text in zip(expected, found, strict=True)
    )
    assert all("Install the container toolkit; " in text for text in found)
    assert all("/dev/char has no link to /dev/nvidia0" in text for text in found)


@pytest.mark.parametrize(
    ("change", "count"),
    [
        pytest.param(by_crio("nvidia"), 1, id="default runtime"),
        pytest.param(by_crio("crun"), 0, id="by CDI"),
        pytest.param(by_crio("crun", hooks=[{**HOOK, "always": True}]), 1, id="a hook"),
        pytest.param(
            by_crio("crun", hooks=[{**HOOK, "always": False}]), 0, id="a hook that is off"
        ),
        pytest.param(by_crio("nvidia", running=False), 0, id="CRI-O does not run"),
        pytest.param(
            {**by_crio("nvidia"), "cgroup": {"driver": "cgroupfs"}}, 0, id="CRI-O with cgroupfs"
        ),
    ],
)
def test_pods_of_crio(change: Any, count: int) -> None:
    changes = (UNLINKED, by_containerd("runc"), OLD, change)
    assert len(notices("nvidia_container_runtime", *changes)) == count


@pytest.mark.parametrize(("state", "count"), [("present", 1), ("absent", 0)])
def test_no_pod_loses_its_gpus_for_a_service_of_the_driver(state: str, count: int) -> None:
    """A teardown has asked for the pods, which end before it."""
    node = merge(merge(merge(DONE, UNLINKED), MODE_OFF), by_containerd("nvidia"))
    refusals = plan("nvidia_driver", node, state=state)["refusals"]
    assert ["set `nvidia_driver_reboot_ok: true`" in one["remedy"] for one in refusals] == [
        True
    ] * count


def test_links_protect_them() -> None:
    users = {"device_users": [POD]}
    assert notices("nvidia_container_runtime", users, OLD, by_containerd("nvidia")) == []


@pytest.mark.parametrize("users", [[POD], [HOST], None], ids=["a pod", "no pod", "not asked"])
@pytest.mark.parametrize("permitted", [True, False])
def test_no_pod_loses_its_gpus_without_permission(users: Any, permitted: bool) -> None:
    node = merge(merge(merge(DONE, UNLINKED), OLD), by_containerd("nvidia"))
    node["device_users"] = users
    made = plan("nvidia_container_runtime", node, upgrade_ok=True, restart_ok=permitted)
    refusals = [one["code"] for one in made["refusals"]]
    assert refusals == (["RELOAD_TAKES_GPUS"] if users == [POD] and not permitted else [])
    first = [step["slug"] for step in made["steps"]][:1]
    assert first == ([] if refusals else ["link_first" if users == [POD] else "python_debian"])
    if users == [POD]:
        assert made["data"]["links"]["/dev/char/195:255"] == "/dev/nvidiactl"


@pytest.mark.parametrize(
    ("loaded", "users", "steps", "changes", "expected"),
    [
        pytest.param("580.178.04", None, ["x"], (UNLINKED, BY_HOOK), True, id="asks"),
        pytest.param("580.178.04", [], ["x"], (UNLINKED, BY_HOOK), False, id="has asked"),
        pytest.param("580.178.04", None, [], (UNLINKED, BY_HOOK), False, id="nothing to do"),
        pytest.param(None, None, ["x"], (UNLINKED, BY_HOOK), False, id="no driver"),
        pytest.param("580.178.04", None, ["x"], (BY_HOOK,), False, id="systemd finds the devices"),
        pytest.param("580.178.04", None, ["x"], (UNLINKED,), False, id="GPUs by CDI"),
    ],
)
def test_users_are_observed_before_a_step(
    loaded: Any, users: Any, steps: Any, changes: Any, expected: bool
) -> None:
    """Every other plan has None: the observation of a whole fleet does not look for them."""
    node = merge(DONE, {"driver": {"module_version": loaded}})
    for change in changes:
        node = merge(node, change)
    assert needs_users({**node, "device_users": users}, {"x": {"steps": steps}}) is expected


def test_run_that_reloads_nothing() -> None:
    assert notices("nvidia_container_runtime", UNLINKED, by_containerd("nvidia")) == []


@pytest.mark.parametrize(("reload", "count"), [(True, 1), (False, 0)])
def test_kubelet_whose_unit_changed(reload: bool, count: int) -> None:
    stopped = {"kubelet": {"running": False, "needs_reload": reload, "last_error": "x"}}
    changes = (UNLINKED, by_containerd("nvidia"), stopped)
    assert len(notices("kubelet_device_plugins", *changes)) == count


# As Ubuntu's unit of the persistence daemon is.
MODE_OFF = {"driver": {"persistence_off": "/usr/lib/systemd/system/nvidia-persistenced.service"}}
PLUGIN = {"packages": ["docker-compose-plugin"]}


@pytest.mark.parametrize(
    ("planner", "base", "change", "desired", "steps"),
    [
        pytest.param(
            "nvidia_driver", DONE, MODE_OFF, {}, "Start the persistence daemon", id="file"
        ),
        pytest.param("nvidia_driver", DONE, {}, {}, None, id="driver without a step"),
        pytest.param("docker_ce", DOCKER, NVIDIA, PLUGIN, "Install Docker", id="packages"),
        pytest.param("docker_ce", DOCKER, NVIDIA, {}, None, id="Docker without a step"),
    ],
)
def test_other_roles_that_reload_systemd(
    planner: str, base: Any, change: Any, desired: dict[str, Any], steps: str | None
) -> None:
    changes = [UNLINKED, *([by_containerd("nvidia")] if base is DONE else []), change]
    found = notices(planner, *changes, base=base, **desired)
    assert [f"its units: {steps}" in text for text in found] == ([True] if steps else [])


def test_docker_node_of_today_has_no_such_containers() -> None:
    assert notices("nvidia_container_runtime", UNLINKED, OLD, base=DOCKER, engine="docker") == []
