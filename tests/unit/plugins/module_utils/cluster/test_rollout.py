# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kubernetes.client
import pytest

from ansible_collections.metal.gpu.plugins.module_utils.cluster import rollout
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import (
    Settings,
    Timer,
)
from ansible_collections.metal.gpu.tests.unit.support.api_server import ApiServer

LABELS = {"app": "plugin"}
ASKED = {"name": "plugin", "namespace": "kube-system", "selectors": ["app=plugin"]}
FOLDER = {"name": "plugins", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}
MPS = {"name": "mps-root", "hostPath": {"path": "/run/nvidia/mps"}}
CRASH = {
    "reason": "CrashLoopBackOff",
    "message": "back-off 5m0s restarting failed container=ctr pod=plugin-gpu-1_kube-system(0b5e)",
}
NO_IMAGE = {"reason": "ErrImagePull", "message": "manifest unknown"}
OLD_NO_IMAGE = {"reason": "ImagePullBackOff", "message": "Back-off pulling: manifest unknown"}
BUSY = {"reason": "ErrImagePull", "message": "pull QPS exceeded"}
NAME = {"reason": "InvalidImageName"}
NO_POD = "the node has no pod of this version"
BY_DEFAULT: dict[str, Any] = {"revision": "new", "waiting": None, "restarts": 0}


class World(Client):
    """A cluster in which something happens during each pause, which takes no time."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self.passed_s = 0.0
        self.events: list[Callable[[], None]] = []
        key = {"authorization": f"Bearer {api.token}"}
        settings = Settings(kubernetes.client.Configuration(host=api.url, api_key=key), "the test")
        super().__init__(settings, clock=self.clock)

    def clock(self) -> float:
        return self.passed_s

    def pause(self, seconds: float) -> None:
        self.passed_s += seconds
        if self.events:
            self.events.pop(0)()

    def daemonset(self, *, seen: int = 1, generation: int = 1) -> None:
        update = {"rollingUpdate": {"maxUnavailable": "10%"}}
        self.api.put("daemonsets", {
            "metadata": {"name": "plugin", "namespace": "kube-system", "generation": generation},
            "spec": {"updateStrategy": update},
            "status": {"observedGeneration": seen, "desiredNumberScheduled": 20},
        })  # fmt: skip

    def revision(self, name: str, number: int, owner: str = "plugin") -> None:
        metadata = {
            "name": f"{owner}-{name}",
            "namespace": "kube-system",
            "labels": {**LABELS, "controller-revision-hash": name},
            "ownerReferences": [{"kind": "DaemonSet", "name": owner}],
        }
        self.api.put("controllerrevisions", {"metadata": metadata, "revision": number})

    def pods(self, pods: dict[str, dict[str, Any]]) -> None:
        for node, changes in pods.items():
            self.pod(node, **{**BY_DEFAULT, **changes})

    def pod(self, node: str, *, revision: str, waiting: Any, restarts: int, **more: Any) -> None:
        """A pod of the plugin that waits, or is ready."""
        name = more.get("name", f"plugin-{node}")
        state = {"waiting": waiting} if waiting else {"running": {}}
        container = {"name": "ctr", "ready": not waiting, "restartCount": restarts}
        container["state"] = state
        metadata = {"name": name, "uid": more.get("uid", name), "namespace": "kube-system"}
        metadata["labels"] = {**LABELS, "controller-revision-hash": revision}
        if more.get("ends"):
            metadata["deletionTimestamp"] = "2026-11-28T10:00:00Z"
        ready = {"type": "Ready", "status": str(waiting is None)}
        status = {"phase": "Running", "conditions": [ready], "containerStatuses": [container]}
        spec = {"nodeName": node, "volumes": [more.get("volume", FOLDER)]}
        self.api.put("pods", {"metadata": metadata, "spec": spec, "status": status})


@pytest.fixture
def world(api: ApiServer) -> World:
    made = World(api)
    made.daemonset()
    for number, name in enumerate(("old", "new")):
        made.revision(name, number)
    # The template was this one once before, so its number is higher. So is a neighbour's.
    made.revision("other", 7, owner="feature-discovery")
    return made


WAITS = {"waiting": CRASH}
STARTS = {"gpu-1": {"waiting": {"reason": "ContainerCreating"}}}
CRASHES = [STARTS, *({"gpu-1": {**WAITS, "restarts": number}} for number in (1, 2))]
MANY = {f"gpu-{number}": {"revision": "old"} for number in range(3, 20)}


@pytest.mark.parametrize(
    ("events", "limit_s", "found", "ends_s"),
    [
        pytest.param([{"gpu-1": {}}], 300, {}, 0, id="runs"),
        pytest.param([{}, {"gpu-1": {}}], 300, {}, 4, id="comes, and is looked at again"),
        pytest.param(
            [{}, {"gpu-1": {}}, {"gpu-1": {**WAITS, "restarts": 1}}, {"gpu-1": {"restarts": 2}}],
            300,
            {},
            8,
            id="a container that ends at once is ready for a moment",
        ),
        pytest.param(CRASHES, 300, {"gpu-1": "CrashLoopBackOff"}, 4, id="nobody waits"),
        pytest.param(
            [{"gpu-1": {**WAITS, "restarts": 9}}] * 40 + [{"gpu-1": {"restarts": 9}}],
            300,
            {},
            82,
            id="the cause of a former crash is gone",
        ),
        pytest.param(
            [{"gpu-1": {**WAITS, "restarts": 9}}] * 40 + [{"gpu-1": {**WAITS, "restarts": 10}}],
            300,
            {"gpu-1": "CrashLoopBackOff"},
            80,
            id="it is not",
        ),
        pytest.param([{"gpu-1": WAITS}], 60, {"gpu-1": "CrashLoopBackOff"}, 60, id="time is up"),
        pytest.param([{"gpu-1": {"waiting": NO_IMAGE}}], 60, {"gpu-1": "ErrImage"}, 0, id="image"),
        pytest.param([{"gpu-1": {"waiting": NAME}}], 60, {"gpu-1": "InvalidIm"}, 0, id="its name"),
        pytest.param(
            [{"gpu-1": {"waiting": OLD_NO_IMAGE}}] * 9 + [{"gpu-1": {}}],
            60,
            {},
            20,
            id="an image that has come",
        ),
        pytest.param(
            [{"gpu-1": {"waiting": BUSY}}] * 9 + [{"gpu-1": {}}], 60, {}, 20, id="busy registry"
        ),
        pytest.param(
            [
                {"gpu-1": {"waiting": NO_IMAGE}, "gpu-2": {"revision": "old"}, **MANY},
                {"gpu-2": {}},
            ],
            300,
            {"gpu-1": "ErrImagePull"},
            2,
            id="one that fails does not keep the controller from another",
        ),
        pytest.param(
            [
                {
                    "gpu-1": {"waiting": NO_IMAGE},
                    "gpu-2": {"revision": "old"},
                    "gpu-9": {"waiting": NO_IMAGE},
                }
            ],
            300,
            {"gpu-1": "ErrImagePull", "gpu-2": f"{NO_POD}; the update may wait for gpu-1, gpu-9"},
            0,
            id="two of 10 % of 20 nodes do",
        ),
        pytest.param(
            [{"gpu-1": {"waiting": NO_IMAGE}, "gpu-2": None}, {"gpu-2": {}}],
            300,
            {"gpu-1": "ErrImagePull"},
            2,
            id="a node that has just joined",
        ),
        pytest.param(
            [{"gpu-1": {}, "gpu-9": {"waiting": BUSY}}], 300, {}, 0, id="a node outside the play"
        ),
        pytest.param(
            [{"gpu-1": {"ends": True}}, {"gpu-1": {"name": "plugin-x"}}],
            300,
            {},
            4,
            id="a pod that ends",
        ),
        pytest.param(
            [{"gpu-1": {"volume": MPS}}], 10, {"gpu-1": NO_POD}, 10, id="another pod of the chart"
        ),
    ],
)
def test_wait_ends_when_nothing_more_comes(
    world: World, events: list[Any], limit_s: int, found: dict[str, str], ends_s: int
) -> None:
    nodes = [node for node in ("gpu-1", "gpu-2") if node in {"gpu-1", *events[0]}]
    steps = [{node: pod for node, pod in event.items() if pod is not None} for event in events]
    world.pods(steps[0])
    world.events = [lambda step=step: world.pods(step) for step in steps[1:]]
    result = rollout.wait(
        world, {**ASKED, "nodes": nodes, "revisions": True}, timer(world, limit_s)
    )
    assert result["not_running"].keys() == found.keys()
    for node, words in found.items():
        assert words in result["not_running"][node]
    assert result["seconds"] == ends_s
    absent = {node for node, words in found.items() if words.startswith(("ErrImage", "Invalid"))}
    assert {*result["without_image"]} - {"gpu-9"} == absent


def timer(world: World, limit_s: float) -> Timer:
    return Timer(limit_s, world.clock)


def test_wait_for_a_controller_that_has_not_seen_the_change(world: World) -> None:
    """Until then, the former revision is the newest, and its pods are ready."""
    world.daemonset(seen=1, generation=2)
    world.pods({"gpu-1": {}})
    asked = {**ASKED, "nodes": ["gpu-1"], "revisions": True}
    unseen = rollout.wait(world, asked, timer(world, 10))
    assert unseen["not_running"] == {"gpu-1": "the controller manager does not see the change"}
    world.events = [
        lambda: world.revision("newest", 2),
        lambda: world.daemonset(seen=2, generation=2),
        lambda: world.pods({"gpu-1": {"revision": "newest"}}),
    ]
    result = rollout.wait(world, asked, timer(world, 60))
    assert (result["not_running"], result["seconds"]) == ({}, 8)


def test_pods_outside_the_play_may_be_of_a_former_revision(world: World) -> None:
    """They still need the ConfigMap of that revision."""
    world.pods({"gpu-1": {}, "gpu-9": {"revision": "old"}})
    asked = {**ASKED, "nodes": ["gpu-1"], "revisions": True}
    result = rollout.wait(world, asked, timer(world, 60))
    assert (result["not_running"], result["has_former"]) == ({}, True)


def test_any_revision_of_an_adopted_plugin_is_enough(world: World) -> None:
    world.pods({"gpu-1": {"revision": "old"}, "gpu-2": {"waiting": BUSY}})
    asked = {**ASKED, "nodes": ["gpu-1", "gpu-2", "gpu-3"], "revisions": False}
    result = rollout.wait(world, asked, timer(world, 0))
    assert {*result["not_running"]} == {"gpu-2", "gpu-3"}
    assert result["not_running"]["gpu-3"] == "the node has no pod"
    assert result["has_former"] is False
