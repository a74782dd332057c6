# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the roles do on nodes of k3s, RKE2 and k0s. What is observed there is in test_home.py."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    DONE,
    VIRGIN,
    codes,
    load,
    merge,
    names,
    plan,
)
from ansible_collections.metal.gpu.tests.unit.support.distributions import HOME

ROLE = "nvidia_container_runtime"
CONFIG = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
DROP_INS = "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d"
RESTART = "Restart the Kubernetes distribution"
AWAIT = "Wait until the distribution has restarted its containerd"
UNREGISTER = "Remove the NVIDIA runtime from containerd"
REGISTER = "Register the NVIDIA runtime"
OF_K0S = {
    "home": {
        **HOME,
        "name": "k0s",
        "unit": "k0sworker.service",
        "detects_runtimes": False,
        "watched": "/etc/k0s/containerd.d",
    },
    "socket": "/run/k0s/containerd.sock",
    "config": {"path": "/etc/k0s/containerd.toml", "imports": ["/etc/k0s/containerd.d/*.toml"]},
}
FOUND = {
    "nvidia": {
        "type": "io.containerd.runc.v2",
        # Where the PATH of the distribution has it first; /usr/sbin is a link on some systems.
        "binary": "/usr/sbin/nvidia-container-runtime",
        "systemd_cgroup": True,
    }
}
EDIT = {
    "path": f"{DROP_INS}/99-metal-gpu.toml",
    "actor": "metal.gpu.nvidia_container_runtime",
    "changes": [],
    "untouched": True,
    "error": None,
}

ISOLATION = {
    **EDIT,
    "path": "/etc/nvidia-container-runtime/config.toml",
}


def of_k3s(base: Any = VIRGIN, **engine: Any) -> Any:
    """Return a node of k3s with containerd 2.2, whose generated file imports drop-ins."""
    return merge(
        base,
        {
            "kubelet": {
                "distribution": {"name": "k3s", "unit": "k3s-agent.service"},
                "endpoint": "unix:///run/k3s/containerd/containerd.sock",
                "path": None,
                "own_name": None,
            },
            "engines": {
                "containerd": merge(
                    {
                        "path": "/var/lib/rancher/k3s/data/0a1b/bin/containerd",
                        "version": "2.2.0",
                        "socket": "/run/k3s/containerd/containerd.sock",
                        "config": {"path": CONFIG, "imports": [f"{DROP_INS}/*.toml"]},
                        "home": HOME,
                    },
                    engine,
                )
            },
        },
    )


def done(**engine: Any) -> Any:
    """Return the node with the toolkit and a driver, as the role leaves it."""
    node = copy.deepcopy(DONE)
    node["engines"]["containerd"]["runtimes"].pop("nvidia", None)
    node["ours"] = {**node["ours"], "edits": []}
    return of_k3s(node, **engine)


def runtime_steps(planned: Any) -> list[str]:
    return [name for name in names(planned) if name in (REGISTER, RESTART, AWAIT)]


@pytest.mark.parametrize(
    ("engine", "steps", "path"),
    [
        pytest.param({}, [RESTART], None, id="k3s finds the runtime"),
        pytest.param(
            {"home": {"runtime_in_path": False}},
            [REGISTER, RESTART],
            f"{DROP_INS}/99-metal-gpu.toml",
            id="its PATH lacks the folder",
        ),
        pytest.param(
            {"home": {"template": "/t", "template_lists_runtimes": False}},
            [REGISTER, RESTART],
            f"{DROP_INS}/99-metal-gpu.toml",
            id="a template without the runtimes, with imports",
        ),
        pytest.param(
            OF_K0S, [REGISTER, AWAIT], "/etc/k0s/containerd.d/99-metal-gpu.toml", id="k0s"
        ),
        pytest.param(
            {**OF_K0S, "home": {**OF_K0S["home"], "is_managed": False}},
            [REGISTER, RESTART],
            "/etc/k0s/containerd.d/99-metal-gpu.toml",
            id="k0s with a file of the admin",
        ),
    ],
)
def test_virgin_node(engine: Any, steps: list[str], path: str | None) -> None:
    planned = plan(ROLE, of_k3s(**engine), restart_ok=True)
    assert codes(planned) == []
    assert runtime_steps(planned) == steps
    config = planned["data"]["config"]
    assert (config and config["path"]) == path
    assert config is None or config["merge"]["version"] == 3
    change = planned["data"]["change"]
    assert (change and change["path"]) == path
    # The distribution's own roles: nothing to do.
    assert names(plan("containerd", of_k3s(**engine))) == []
    assert names(plan("kubelet_device_plugins", of_k3s(**engine))) == []
    assert codes(plan("preflight", of_k3s(**engine))) == []


def test_restart_is_the_admin_s_to_permit() -> None:
    assert codes(plan(ROLE, of_k3s())) == ["DISTRIBUTION_RESTART"]
    assert codes(plan(ROLE, of_k3s(**OF_K0S))) == []


@pytest.mark.parametrize(
    ("engine", "desired", "steps"),
    [
        pytest.param({"runtimes": FOUND}, {}, [], id="k3s found it"),
        pytest.param({"runtimes": FOUND, **OF_K0S}, {}, [], id="k0s has the drop-in"),
        pytest.param(
            {"runtimes": FOUND, "version": "1.7.27", "cdi_enabled": True},
            {},
            [],
            id="containerd 1.7 that has everything",
        ),
        pytest.param({}, {}, [RESTART], id="the toolkit came after the start"),
        pytest.param(
            {"home": {"started_after_runtime": True}}, {}, [REGISTER, RESTART], id="not found"
        ),
        pytest.param(
            {"runtimes": FOUND}, {"default": True}, [REGISTER, RESTART], id="default runtime"
        ),
        pytest.param(
            {"runtimes": FOUND, "changed_since_start": [f"{DROP_INS}/99-metal-gpu.toml"]},
            {},
            [RESTART],
            id="an interrupted run",
        ),
        pytest.param(
            {"runtimes": FOUND, "changed_since_start": [f"{DROP_INS}/50-site.toml"]},
            {},
            [],
            id="a drop-in of the admin waits for the next start",
        ),
    ],
)
def test_node_with_the_toolkit(engine: Any, desired: Any, steps: list[str]) -> None:
    planned = plan(ROLE, done(**engine), restart_ok=True, **desired)
    assert codes(planned) == []
    assert names(planned) == steps


REFUSED: list[tuple[str, Any, dict[str, Any], list[str]]] = [
    (
        "imports nothing",
        {"home": {"started_after_runtime": True}, "config": {"imports": []}},
        {},
        ["RUNTIME_NOT_DETECTED"],
    ),
    (
        "a template without imports",
        {
            "home": {"template": "/t.tmpl", "template_lists_runtimes": False},
            "config": {"imports": []},
        },
        {},
        ["RUNTIME_NOT_DETECTED"],
    ),
    (
        "imports a file, and the default is asked for",
        {"runtimes": FOUND, "config": {"imports": ["/srv/site.toml"]}},
        {"default": True},
        ["RUNTIME_NOT_DETECTED"],
    ),
    ("containerd 1.7", {"version": "1.7.28"}, {}, ["DISTRIBUTION_TOO_OLD"]),
    (
        "k0s with a drop-in of version 2",
        {**OF_K0S, "home": {**OF_K0S["home"], "former_drop_ins": ["/etc/k0s/containerd.d/n.toml"]}},
        {},
        ["DROP_IN_FORMER"],
    ),
    (
        "containerd 1.7 that has the runtime, and the default is asked for",
        {"runtimes": FOUND, "version": "1.7.27", "cdi_enabled": True},
        {"default": True},
        ["DISTRIBUTION_TOO_OLD"],
    ),
    ("stopped", {"running": False}, {}, ["DISTRIBUTION_STOPPED"]),
    ("another engine", {}, {"engine": "docker"}, ["ENGINE_MISMATCH"]),
    (
        "the Operator's toolkit",
        {"runtimes": {"nvidia": {**FOUND["nvidia"], "binary": "/usr/local/nvidia/toolkit/n"}}},
        {},
        ["OPERATOR_TOOLKIT"],
    ),
]


@pytest.mark.parametrize(
    ("engine", "desired", "expected"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED]
)
def test_refusals(engine: Any, desired: dict[str, Any], expected: list[str]) -> None:
    planned = plan(ROLE, done(**engine), restart_ok=True, **desired)
    assert codes(planned) == expected
    assert planned["steps"] == []


def test_drop_in_that_the_running_k0s_needs_is_named() -> None:
    path = "/etc/k0s/containerd.d/nvidia.toml"
    engine = {
        **OF_K0S,
        "home": {**OF_K0S["home"], "former_drop_ins": [path]},
        "runtimes": FOUND,
        "version": "1.7.27",
        "cdi_enabled": True,
    }
    planned = plan(ROLE, done(**engine))
    assert (codes(planned), names(planned)) == ([], [])
    (notice,) = [one for one in planned["notices"] if one["code"] == "DROP_IN_BEFORE_UPGRADE"]
    assert path in notice["message"]


@pytest.mark.parametrize(
    ("home", "imports", "said"),
    [
        pytest.param({}, [], f"{CONFIG} imports no drop-ins", id="an old release"),
        pytest.param({"template": "/t.tmpl"}, [], "/t.tmpl has no imports", id="template"),
        pytest.param(
            {"runtime_in_path": False},
            [],
            "the PATH of k3s-agent.service lacks /usr/bin",
            id="PATH",
        ),
    ],
)
def test_refusal_names_the_reason(home: Any, imports: list[str], said: str) -> None:
    engine = {"home": {"started_after_runtime": True, **home}, "config": {"imports": imports}}
    (refusal,) = plan(ROLE, done(**engine), restart_ok=True)["refusals"]
    assert said in refusal["message"]


def test_stopped_distribution_is_refused_by_preflight_and_not_started() -> None:
    node = of_k3s(running=False)
    assert codes(plan("preflight", node)) == ["DISTRIBUTION_STOPPED"]
    assert codes(plan("containerd", node)) == ["DISTRIBUTION_STOPPED"]


CRIO = {"crio": {**load("crio")["engines"]["crio"]}}


@pytest.mark.parametrize(
    ("endpoint", "engine", "expected"),
    [
        pytest.param(
            "unix:///var/run/crio/crio.sock", CRIO, [], id="CRI-O, as of gpu-operator#2236"
        ),
        pytest.param(
            "unix:///run/containerd/containerd.sock",
            {},
            ["ENGINE_UNSUPPORTED"],
            id="a containerd of the host",
        ),
        pytest.param("unix:///run/frakti.sock", {}, ["ENGINE_UNSUPPORTED"], id="unknown"),
        pytest.param(
            "unix:///run/k3s/containerd/containerd.sock", {}, ["DISTRIBUTION_STOPPED"], id="its own"
        ),
    ],
)
def test_distribution_whose_kubelet_uses_another_engine(
    endpoint: str, engine: Any, expected: list[str]
) -> None:
    node = of_k3s(DONE, running=False)
    node = merge(node, {"kubelet": {"endpoint": endpoint}, "engines": engine})
    assert codes(plan("preflight", node)) == expected
    planned = plan(ROLE, node)
    assert codes(planned) == expected
    if not expected:
        assert codes(plan("crio", node)) == codes(plan("kubelet_device_plugins", node)) == []
        assert [name for name in names(planned) if "CRI-O" in name][-1:] == ["Restart CRI-O"]
        assert not [name for name in names(planned) if "distribution" in name]


def test_driver_reboots_a_node_of_k3s() -> None:
    """Its kubelet is known, so the role drains the node."""
    node = merge(of_k3s(), {"kernel": {"modules": ["nouveau"]}})
    assert codes(plan("nvidia_driver", node, reboot_ok=True)) == []


@pytest.mark.parametrize(
    ("engine", "edits", "restart_ok", "steps"),
    [
        pytest.param({"runtimes": FOUND}, [], True, [RESTART], id="found, restart permitted"),
        pytest.param(
            {"runtimes": FOUND},
            [],
            False,
            [],
            id="found, not permitted",
        ),
        pytest.param(
            {"runtimes": FOUND},
            [EDIT],
            True,
            [UNREGISTER, RESTART],
            id="a drop-in",
        ),
        pytest.param(
            {"runtimes": FOUND, **OF_K0S},
            [{**EDIT, "path": "/etc/k0s/containerd.d/99-metal-gpu.toml"}],
            False,
            [UNREGISTER, AWAIT],
            id="k0s",
        ),
        pytest.param(
            {"running": False},
            [EDIT],
            False,
            [UNREGISTER],
            id="stopped",
        ),
        pytest.param({}, [], False, [], id="gone"),
        pytest.param(OF_K0S, [ISOLATION], False, [], id="k0s, only the toolkit's settings"),
        pytest.param({}, [ISOLATION], True, [], id="k3s, only the toolkit's settings"),
    ],
)
def test_teardown(engine: Any, edits: list[Any], restart_ok: bool, steps: list[str]) -> None:
    node = done(**engine)
    node["ours"]["edits"] = edits
    planned = plan(ROLE, node, state="absent", restart_ok=restart_ok)
    assert codes(planned) == []
    found = [name for name in names(planned) if "containerd" in name or name == RESTART]
    assert found == steps


def test_restart_comes_after_the_toolkit_is_gone() -> None:
    """A distribution that starts before finds it again."""
    node = done(runtimes=FOUND)
    steps = [step["slug"] for step in plan(ROLE, node, state="absent", restart_ok=True)["steps"]]
    assert steps.index("remove") < steps.index("restart_distribution")
