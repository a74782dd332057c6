# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.cluster import pod_status

SCENES = yaml.safe_load(
    (Path(__file__).parents[3] / "fixtures/kubernetes/pods.yml").read_text(encoding="utf-8")
)
GPU = "nvidia.com/gpu"


def container(gpus, **more):
    return {"resources": {"limits": {GPU: str(gpus), "memory": "1Gi"}}, **more}


@pytest.mark.parametrize(
    ("init", "containers", "gpus"),
    [
        pytest.param([], [{}], 0, id="none"),
        pytest.param([], [container(2)], 2, id="one"),
        pytest.param([], [container(2), {}, container(1)], 3, id="sum"),
        pytest.param([container(4), container(1)], [container(2)], 4, id="init-passes"),
        pytest.param([container(1)], [container(2)], 2, id="init-is-less"),
        pytest.param([container(1, restartPolicy="Always")], [container(2)], 3, id="sidecar-stays"),
        pytest.param(
            [container(1, restartPolicy="Always"), container(4)],
            [container(2)],
            5,
            id="init-beside-sidecar",
        ),
        pytest.param(
            [container(4), container(1, restartPolicy="Always")],
            [container(2)],
            4,
            id="init-before-sidecar",
        ),
    ],
)
def test_claimed(init, containers, gpus):
    pod = {"spec": {"initContainers": init, "containers": containers}}
    assert pod_status.claimed(pod, GPU) == gpus


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [
        (None, 0),
        ({"limits": None}, 0),
        ({"limits": {GPU: None}}, 0),
        ({"limits": {GPU: "4x"}}, 1),  # it holds something
        ({"limits": {GPU: []}}, 0),
    ],
)
def test_limits_that_no_api_server_accepts(resources, gpus):
    pod = {"spec": {"containers": [{"name": "a", "resources": resources}]}}
    assert pod_status.claimed(pod, GPU) == gpus


@pytest.mark.parametrize(
    ("volumes", "answer"),
    [
        pytest.param([{"hostPath": {"path": "/var/lib/kubelet/device-plugins"}}], True, id="usual"),
        pytest.param([{"hostPath": {"path": "/data/kubelet/device-plugins/"}}], True, id="moved"),
        pytest.param([{"hostPath": {"path": "/var/lib/kubelet/pods"}}], False, id="other-folder"),
        pytest.param([{"name": "token", "projected": {}}], False, id="no-host-path"),
    ],
)
def test_is_device_plugin(volumes, answer):
    assert pod_status.is_device_plugin({"spec": {"volumes": volumes}}) is answer


FOLDER = {"name": "plugins", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}
MANAGER = {"name": "manager", "volumeMounts": [{"name": "config", "mountPath": "/config"}]}
PLUGIN = {"name": "plugin", "volumeMounts": [{"name": "plugins", "mountPath": "/x"}]}


@pytest.mark.parametrize(
    ("containers", "name"),
    [
        pytest.param([PLUGIN], "plugin", id="alone"),
        pytest.param([MANAGER, PLUGIN], "plugin", id="chart with a configuration"),
        pytest.param([{"name": "a"}, MANAGER], "a", id="none mounts it"),
    ],
)
def test_plugin_container(containers, name):
    pod = {"spec": {"volumes": [{"name": "config"}, FOLDER], "containers": containers}}
    assert pod_status.plugin_container(pod) == name


@pytest.mark.parametrize(
    ("scene", "text"),
    [
        ("new", "Pending"),
        ("tainted", "Pending: Unschedulable: 0/2 nodes are available: 1 node(s) didn't satisfy"),
        ("creating", "Pending: nvidia-smi: ContainerCreating"),
        ("no_image", "Pending: nvidia-smi: ErrImagePull: failed to resolve image: registry.exam"),
        ("running", "Running"),
        ("not_ready", "Running, but not ready"),
        ("crash_loop", "Running: nvidia-device-plugin-ctr: CrashLoopBackOff: back-off 5m0s rest"),
        ("not_admitted", "Failed: UnexpectedAdmissionError: Pod was rejected: Allocate failed due"),
        ("too_long", "Failed: DeadlineExceeded: Pod was active on the node longer than the"),
        ("not_started", "Failed: nvidia-smi: exit code 128: StartError: nvidia-container-cli: ini"),
        ("two_gpus", "Succeeded"),
    ],
)
def test_describe(scene, text):
    described = pod_status.describe({"status": SCENES[scene]})
    assert described.startswith(text)
    assert len(text) > 60 or described == text


@pytest.mark.parametrize(
    ("reason", "message", "answer"),
    [
        pytest.param("ErrImagePull", "pull QPS exceeded", False, id="kubelet is busy"),
        pytest.param(
            "ErrImagePull",
            "failed to copy: httpReadSeeker: failed open: unexpected status code https://r.example"
            "/v2/cuda/manifests/sha256:0: 429 Too Many Requests - Server message: toomanyrequests:"
            " You have reached your pull rate limit; denied",
            False,
            id="registry is busy",
        ),
        pytest.param(
            "ErrImagePull", "dial tcp: lookup r.example: no such host", False, id="no address"
        ),
        pytest.param("ImagePullBackOff", 'Back-off pulling image "a"', False, id="no reason"),
        pytest.param("RegistryUnavailable", "the registry is unavailable", False, id="registry"),
        pytest.param("ErrImagePull", None, False, id="no message"),
        pytest.param(
            "ErrImagePull", "failed to resolve reference a: a:1: not found", True, id="no tag"
        ),
        pytest.param("ErrImagePull", "manifest unknown", True, id="no manifest"),
        pytest.param(
            "ErrImagePull",
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            True,
            id="another CA",
        ),
        pytest.param(
            "ImagePullBackOff",
            'Back-off pulling image "a": ErrImagePull: pull access denied, repository does not '
            "exist or may require authorization: server message: insufficient_scope",
            True,
            id="denied",
        ),
        pytest.param(
            "ErrImagePull", "unexpected status: 401 Unauthorized", True, id="unauthorised"
        ),
        pytest.param("ErrImagePull", "invalid reference format", True, id="no name"),
        pytest.param("InvalidImageName", "", True, id="kubelet takes no such name"),
        pytest.param("ErrImageNeverPull", "", True, id="not on the node"),
        pytest.param("CreateContainerError", "", True, id="no container"),
        pytest.param("ContainerCreating", "", False, id="starts"),
        pytest.param("", "", False, id="does not wait"),
    ],
)
def test_is_hopeless(reason, message, answer):
    assert pod_status.is_hopeless({"reason": reason, "message": message}) is answer


@pytest.mark.parametrize(
    "event",
    [
        pytest.param({"lastTimestamp": "2026-11-20T10:00:00Z", "eventTime": None}, id="core"),
        pytest.param({"eventTime": "2026-11-20T10:00:00Z", "series": None}, id="events-api"),
        pytest.param(
            {
                "eventTime": "2026-11-20T09:00:00Z",
                "series": {"lastObservedTime": "2026-11-20T10:00:00Z"},
            },
            id="series",
        ),
        pytest.param({"metadata": {"creationTimestamp": "2026-11-20T10:00:00Z"}}, id="neither"),
    ],
)
def test_event_time(event):
    assert pod_status.event_time(event) == "2026-11-20T10:00:00Z"
