# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Engines as nobody sets them up in a test: rivals, future versions, ten drop-ins, foreign hooks.

What containerd.service does with these is in containerd/test_versions.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.containerd import (
    test_embedded as embedded,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.crio import (
    test_plan as crio,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    VIRGIN,
    codes,
    load,
    merge,
    names,
    plan,
)
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant, recording

RUNTIME = "nvidia_container_runtime"
DAEMON_JSON = "/etc/docker/daemon.json"
TOOLKIT = {key: value for key, value in load("done").items() if key not in ("engines", "ours")}
DOCKER = merge(merge(VIRGIN, load("docker")), TOOLKIT)
K3S_DROP_IN = f"{embedded.DROP_INS}/99-metal-gpu.toml"
CRIO_IS_DOWN = {
    "crio --version": (0, "crio version 1.36.3\n", ""),
    "crio status": (1, "", "dial unix: no such file\n"),
}
NOT_FOUND = {"home": {"started_after_runtime": True}}


def edited(node: Any, path: str, actor: str, *, untouched: bool) -> Any:
    edit = {"path": path, "actor": actor, "changes": [], "untouched": untouched, "error": None}
    return merge(node, {"ours": {"edits": [edit]}})


# -------------------------------------------------------------------------------------------------
# Two tools that write one file


@pytest.mark.parametrize("untouched", [True, False])
@pytest.mark.parametrize(
    ("node", "path", "actor", "desired"),
    [
        pytest.param(DOCKER, DAEMON_JSON, f"metal.gpu.{RUNTIME}", {"default": None}, id="docker"),
        pytest.param(crio.FRESH, crio.DROP_IN, crio.ACTOR, {}, id="crio"),
        pytest.param(
            embedded.done(**NOT_FOUND),
            K3S_DROP_IN,
            f"metal.gpu.{RUNTIME}",
            {"restart_ok": True},
            id="k3s",
        ),
    ],
)
def test_tool_that_undoes_the_edit_is_named(
    node: Any, path: str, actor: str, desired: dict[str, Any], *, untouched: bool
) -> None:
    """The run repairs its own keys, and says that somebody else takes them out."""
    planned = plan(RUNTIME, edited(node, path, actor, untouched=untouched), **desired)
    assert codes(planned) == []
    reasons = [one["reason"] for one in planned["steps"] if one["slug"].startswith("register")]
    assert len(reasons) == 1
    assert (f"something else has changed {path}" in reasons[0]) is not untouched


def test_another_role_of_this_collection_is_no_rival() -> None:
    node = edited(DOCKER, DAEMON_JSON, f"metal.gpu.{RUNTIME}", untouched=False)
    (ours,) = node["ours"]["edits"]
    node["ours"]["edits"] = [ours, {**ours, "actor": "metal.gpu.docker_ce", "untouched": True}]
    reasons = [one["reason"] for one in plan(RUNTIME, node, default=None)["steps"]]
    assert not any("something else" in reason for reason in reasons)


# -------------------------------------------------------------------------------------------------
# A version that nobody has seen


@pytest.mark.parametrize(
    ("node", "future", "desired"),
    [
        pytest.param(
            DOCKER,
            {"docker": {"version": "99.0.0", "server_version": "99.0.0"}},
            {"default": None},
            id="docker",
        ),
        pytest.param(crio.FRESH, {"crio": {"version": "9.0.0"}}, {}, id="crio"),
        pytest.param(
            embedded.of_k3s(), {"containerd": {"version": "9.0.0"}}, {"restart_ok": True}, id="k3s"
        ),
        pytest.param(
            embedded.of_k3s(**embedded.OF_K0S), {"containerd": {"version": "9.0.0"}}, {}, id="k0s"
        ),
    ],
)
def test_version_of_the_future_that_answers_as_known_is_used(
    node: Any, future: Any, desired: dict[str, Any]
) -> None:
    planned = plan(RUNTIME, merge(node, {"engines": future}), **desired)
    assert codes(planned) == []
    assert names(planned) == names(plan(RUNTIME, node, **desired))


def test_crio_of_the_future_that_answers_otherwise_is_refused() -> None:
    node = merge(crio.FRESH, crio.crio(version="9.0.0"))
    node["engines"]["crio"]["runtimes"] = {}  # in another place, or in another form
    planned = plan(RUNTIME, node)
    assert (codes(planned), planned["steps"]) == (["CRIO_RUNTIME_UNKNOWN"], [])


def test_k0s_of_the_future_that_answers_otherwise_is_refused() -> None:
    """Its drop-in would have a table that this containerd does not know."""
    future = {"version": "9.0.0", "cri_enabled": None, "config": {"source": "config dump"}}
    node = merge(embedded.of_k3s(**embedded.OF_K0S), {"engines": {"containerd": future}})
    planned = plan(RUNTIME, node)
    assert (codes(planned), planned["steps"]) == (["CONTAINERD_UNKNOWN"], [])


# -------------------------------------------------------------------------------------------------
# Configuration in ten drop-ins


def test_ten_drop_ins_of_crio(observe, tmp_path):
    """Each has one setting; the last one that has a setting counts."""
    folder = "/etc/crio/crio.conf.d"
    keys = [
        '[crio.runtime]\ndefault_runtime = "crun"\n',
        '[crio.runtime.runtimes.crun]\nruntime_path = "/opt/crun"\nmonitor_path = "/opt/conmon"\n',
        '[crio.image]\npause_image = "registry.example.org/pause"\n',
        "[crio.runtime]\npids_limit = 0\n",
        "[crio.metrics]\nenable_metrics = true\n",
        '[crio.runtime.runtimes.kata]\nruntime_path = "/opt/kata"\nruntime_type = "vm"\n',
        '[crio.network]\nplugin_dirs = ["/opt/cni/bin"]\n',
        '[crio.runtime]\nhooks_dir = ["/srv/hooks.d"]\n',
        '[crio.runtime]\ndefault_runtime = "runc"\n',
        '[crio.runtime.runtimes.crun]\nruntime_path = "/usr/libexec/crio/crun"\n',
    ]
    paths = [f"{folder}/{number}0-part.conf" for number in range(10)]
    plant(tmp_path, dict(zip(paths, keys, strict=True)))
    found = observe(Programs(CRIO_IS_DOWN))
    engine = found["engines"]["crio"]
    assert engine["config"]["files"] == paths
    assert (engine["default_runtime"], engine["hooks_dirs"]) == ("runc", ["/srv/hooks.d"])
    assert engine["runtimes"]["crun"]["binary"] == "/usr/libexec/crio/crun"
    assert engine["config"]["runtime_files"]["crun"] == [paths[1], paths[9]]
    assert engine["config"]["defaults"] == {paths[0]: "crun", paths[8]: "runc"}


def test_ten_drop_ins_of_crio_after_ours_are_all_named() -> None:
    later = [f"/etc/crio/crio.conf.d/99-z{number}.conf" for number in range(10)]
    config = {"files": later, "runtime_files": {"nvidia": later}}
    other = {"nvidia": {**crio.NVIDIA, "binary": "/opt/nvidia-container-runtime"}}
    node = merge(crio.FRESH, crio.crio(runtimes=other, config=config))
    (refusal,) = plan(RUNTIME, node)["refusals"]
    assert refusal["code"] == "CRIO_DROP_IN_REPLACED"
    assert all(path in refusal["message"] for path in later)


def test_ten_drop_ins_of_the_kubelet(observe, tmp_path):
    """The last one counts, and one that cannot be read is named, and hides none."""
    folder = "/etc/kubernetes/kubelet.conf.d"
    texts = {f"{folder}/{number}0-part.conf": f"maxPods: {number}\n" for number in range(8)}
    texts |= {
        f"{folder}/80-engine.conf": "containerRuntimeEndpoint: unix:///run/crio/crio.sock\n",
        f"{folder}/90-gates.conf": "featureGates: {DevicePlugins: true\n",
    }
    unit = f"[Service]\nExecStart=/usr/bin/kubelet --config-dir={folder}\n"
    plant(tmp_path, {**texts, "/etc/systemd/system/kubelet.service": unit})
    kubelet = observe(Programs({}))["kubelet"]
    files = kubelet["config_dir"]["files"]
    assert [one["path"] for one in files] == sorted(texts)
    assert [one["path"] for one in files if one["error"]] == [f"{folder}/90-gates.conf"]
    assert kubelet["endpoint"] == "unix:///run/crio/crio.sock"


def test_ten_drop_ins_of_dockers_unit(observe, tmp_path):
    """The flag that clashes is named with the one file that has it."""
    folder = "/etc/systemd/system/docker.service.d"
    texts = {
        f"{folder}/{number}0-part.conf": f"[Service]\nEnvironment=SITE_{number}=--label=x\n"
        for number in range(10)
    }
    guilty = f"{folder}/70-part.conf"
    texts[guilty] = "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd --default-runtime=runc\n"
    unit = "[Service]\nExecStart=/usr/bin/dockerd -H fd://\n"
    plant(tmp_path, {**texts, "/usr/lib/systemd/system/docker.service": unit})
    flags = observe(Programs({}))["engines"]["docker"]["flags"]
    assert [(one["name"], one["file"]) for one in flags if one["effective"]] == [
        ("--default-runtime", guilty)
    ]
    node = merge(DOCKER, {"engines": {"docker": {"flags": flags}}})
    (refusal,) = plan(RUNTIME, node, default=None)["refusals"]
    assert refusal["code"] == "DOCKER_FLAG_CLASH"
    assert guilty in refusal["message"]


# -------------------------------------------------------------------------------------------------
# A hook directory of somebody else's


def test_hooks_of_others_stay_whatever_is_permitted(observe, tmp_path):
    """CRI-O reads them from folders that an admin has named. One is no JSON, one has no program."""
    hook = {"version": "1.0.0", "hook": {"path": "/opt/acme/hook"}, "stages": ["prestart"]}
    theirs = {
        "/srv/acme/hooks.d/10-acme.json": json.dumps(hook),
        "/srv/acme/hooks.d/20-broken.json": "{",
        "/srv/acme/hooks.d/30-empty.json": "{}",
        "/srv/acme/hooks.d/nvidia-notes.txt": "nvidia-container-runtime-hook",
    }
    folders = '[crio.runtime]\nhooks_dir = ["/srv/acme/hooks.d", "/srv/none"]\n'
    packaged = recording("crio/10-crio.conf")
    named = "/etc/crio/crio.conf.d/20-acme.conf"
    plant(tmp_path, {**theirs, "/etc/crio/crio.conf.d/10-crio.conf": packaged, named: folders})
    found = observe(Programs(CRIO_IS_DOWN))
    engine = found["engines"]["crio"]
    assert (engine["hooks_dirs"], engine["hooks"]) == (["/srv/acme/hooks.d", "/srv/none"], [])
    read = {key: engine[key] for key in ("hooks", "hooks_dirs")}
    planned = plan(RUNTIME, merge(crio.DONE, crio.crio(**read)), replace_oci_hooks=True)
    assert (codes(planned), names(planned), planned["notices"]) == ([], [], [])
