# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cluster has a fault that an operator meets: the verdict names its cause."""

from __future__ import annotations

import base64
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import canaries
import pytest
import yaml
from breaks import CONTAINERD, offers
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PLUGIN = ("daemonset", "nvidia-device-plugin", "--namespace=kube-system")
LABEL = "nvidia.com/gpu.present"
# Of the pods of the device plugin, without those of the proof.
WITHOUT_PODS = ("-e", "verify_smoke=false", "-e", "verify_capacity_timeout=1")
PROOF_ALONE = ("--limit=gpu-2", "-e", "verify_drift=false")


# -------------------------------------------------------------------------------------------------
# No answer


@pytest.fixture
def away(ready: Any) -> Iterator[str]:
    """A node that cannot be reached."""
    ready.lab("fault", "gpu-2", "cut-ssh")
    yield "gpu-2"
    ready.lab("fault", "gpu-2", "restore-ssh")


def test_credential_plugin_that_is_not_there_and_a_node_that_is_away(
    ready, verdicts, away, tmp_path
):
    """Both are in the table, and each is explained."""

    def log_in(_cluster: Any, user: Any) -> None:
        user.clear()
        user["exec"] = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "cloud-login-that-nobody-has",
            "interactiveMode": "Never",
        }

    found = verdicts(CONTAINERD, "-e", ready.kubeconfig_with(tmp_path / "kubeconfig", log_in))
    assert found["gpu-1"] == {"CLUSTER_PLUGIN_FAILED"}
    assert found[away] == {"CLUSTER_PLUGIN_FAILED", "NODE_UNREACHABLE"}


def test_credential_plugin_that_fails_and_says_a_secret(ready, verdicts, tmp_path):
    secret = canaries.invent()

    def log_in(_cluster: Any, user: Any) -> None:
        words = f"cannot log in with password={secret['registry']}"
        user.clear()
        user["token"] = secret["mirror"]
        user["exec"] = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", f"echo '{words}' >&2; exit 1"],
            "interactiveMode": "Never",
        }

    option = ready.kubeconfig_with(tmp_path / "kubeconfig", log_in)
    found = verdicts("--limit=gpu-2", "-e", option, "-vvvv")
    assert found["gpu-2"] <= {"CLUSTER_PLUGIN_FAILED", "CLUSTER_UNAUTHENTICATED"}
    assert found["gpu-2"]
    (_command, output) = ready.printed[-1]
    assert canaries.shown(secret, output) == []


# -------------------------------------------------------------------------------------------------
# The proof's pods

NOT_DELETED = [
    {"apiGroups": [""], "resources": ["nodes", "events"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "create"]},
    {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["list"]},
]


@pytest.fixture
def may_not_delete(ready: Any, tmp_path: Path) -> Iterator[str]:
    """Give the option for a user who may make pods, and not delete them."""
    rbac = "rbac.authorization.k8s.io"
    manifest = yaml.safe_dump_all(
        [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "maker"}},
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRole",
                "metadata": {"name": "maker"},
                "rules": NOT_DELETED,
            },
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "maker"},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "maker"},
                "subjects": [{"kind": "ServiceAccount", "name": "maker", "namespace": "default"}],
            },
        ]
    )
    apply = ("--namespace=default", "-f", "-")
    ready.kubectl("apply", *apply, stdin=manifest)
    yield ready.kubeconfig_of("maker", tmp_path / "kubeconfig")
    ready.kubectl("delete", *apply, stdin=manifest)


def smoke_pods(laboratory: Any) -> list[str]:
    pods = laboratory.objects("pods", "-A", "-l", "app.kubernetes.io/managed-by=metal.gpu")["items"]
    return [name for pod in pods if "smoke" in (name := pod["metadata"]["name"])]


def test_pods_that_may_not_be_deleted_are_not_made(ready, verdicts, may_not_delete, stalled):
    """The run after that has to do with a silent API server."""
    found = verdicts(*PROOF_ALONE, "-e", may_not_delete)
    assert found == {"gpu-2": {"CLUSTER_FORBIDDEN"}}
    assert smoke_pods(ready) == []

    assert verdicts(*PROOF_ALONE, watch=stalled.when_the_pods_begin) == {"gpu-2": set()}
    assert stalled.seconds > stalled.SILENCE_S
    assert smoke_pods(ready) == []


class Stalled:
    """An API server that says nothing for a while, from when a task begins."""

    SILENCE_S = 20.0

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._since = 0.0
        self.timer = threading.Timer(self.SILENCE_S, self.end)
        self.seconds = 0.0

    def when_the_pods_begin(self, line: str) -> None:
        if "Prove every free GPU in a pod" in line and not self._since:
            self._since = time.monotonic()
            os.kill(self._pid, signal.SIGSTOP)
            self.timer.start()

    def end(self) -> None:
        os.kill(self._pid, signal.SIGCONT)
        self.seconds = time.monotonic() - self._since


@pytest.fixture
def stalled(ready: Any) -> Iterator[Stalled]:
    stalled = Stalled(ready.facts["processes"]["kube-apiserver"])
    yield stalled
    stalled.timer.cancel()
    stalled.end()


NAMESPACE = "proof"
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "limits", "namespace": NAMESPACE},
    "spec": {"hard": {"limits.cpu": "1"}},
}
POLICY = [
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-pods"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ]
            },
            "validations": [{"expression": "false", "message": "pods need a cost centre"}],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-pods"},
        "spec": {
            "policyName": "no-pods",
            "validationActions": ["Deny"],
            "matchResources": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
            },
        },
    },
]
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "any", "namespace": NAMESPACE},
    "spec": {"containers": [{"name": "any", "image": "any", "resources": {"limits": {"cpu": 1}}}]},
}


@contextmanager
def applied(laboratory: Any, *objects: Any) -> Iterator[None]:
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    laboratory.kubectl("apply", "-f", "-", stdin=manifest)
    try:
        yield
    finally:
        laboratory.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=manifest)


@contextmanager
def quota(laboratory: Any) -> Iterator[None]:
    with applied(laboratory, QUOTA):
        laboratory.kubectl(
            "wait",
            "--for=jsonpath={.status.hard}",
            f"--namespace={NAMESPACE}",
            "resourcequota/limits",
            "--timeout=30s",
        )
        yield


@contextmanager
def policy(laboratory: Any) -> Iterator[None]:
    with applied(laboratory, *POLICY):
        await_refusal(laboratory)
        yield


LIMITS = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "no-gpus", "namespace": NAMESPACE},
    "spec": {"limits": [{"type": "Container", "max": {"nvidia.com/gpu": "0"}}]},
}
# Nobody listens there.
WEBHOOK = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "away"},
    "webhooks": [
        {
            "name": "away.example.com",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:9/review"},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "timeoutSeconds": 2,
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods"],
                }
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
        }
    ],
}


def await_refusal(laboratory: Any) -> None:
    """Nothing tells when the API server heeds a rule, but that it does."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            laboratory.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(POD))
        except AssertionError:
            return


@contextmanager
def limit_range(laboratory: Any) -> Iterator[None]:
    with applied(laboratory, LIMITS):
        yield


@contextmanager
def webhook(laboratory: Any) -> Iterator[None]:
    with applied(laboratory, WEBHOOK):
        await_refusal(laboratory)
        yield


@contextmanager
def pod_security(laboratory: Any, standard: str = "restricted") -> Iterator[None]:
    key = "pod-security.kubernetes.io/enforce"
    laboratory.kubectl("label", "namespace", NAMESPACE, f"{key}={standard}")
    try:
        yield
    finally:
        laboratory.kubectl("label", "namespace", NAMESPACE, f"{key}-")


@pytest.fixture(scope="module")
def namespace(ready: Any) -> Iterator[str]:
    ready.kubectl("create", "namespace", NAMESPACE)
    ready.kubectl(
        "wait",
        "--for=create",
        f"--namespace={NAMESPACE}",
        "serviceaccount/default",
        "--timeout=30s",
    )
    yield NAMESPACE
    ready.kubectl("delete", "namespace", NAMESPACE)


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (quota, "POD_OVER_QUOTA"),
        (limit_range, "POD_OVER_QUOTA"),
        (policy, "POD_REJECTED"),
        (webhook, "POD_REJECTED"),
        (pod_security, ""),  # which they comply with
    ],
    ids=["quota", "limit range", "policy", "webhook that is down", "Pod Security"],
)
def test_namespace_that_takes_no_such_pod(ready, verdicts, namespace, rule, code):
    with rule(ready):
        found = verdicts(*PROOF_ALONE, "-e", f"verify_smoke_namespace={namespace}")
    assert found == {"gpu-2": {code} - {""}}


PREEMPTIBLE = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "preemptible-batch"},
    "value": -10,
}
REQUESTS = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "team-defaults", "namespace": NAMESPACE},
    "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "500m"}}]},
}


def test_no_running_pod_makes_room_for_the_proof(ready, verdicts, namespace):
    """The node has no CPU left, and the scheduler could make some."""
    cpu = ready.objects("node", "gpu-2")["status"]["allocatable"]["cpu"]
    busy = {"requests": {"cpu": f"{int(cpu) * 1000 - 200}m"}}
    container = {"name": "train", "image": ready.facts["images"]["cuda"], "resources": busy}
    train = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {
            "nodeName": "gpu-2",
            "priorityClassName": "preemptible-batch",
            "terminationGracePeriodSeconds": 1,
            "containers": [{**container, "command": ["sleep", "3600"]}],
        },
    }
    with applied(ready, PREEMPTIBLE, REQUESTS), applied(ready, train):
        pod = ("pod/train", f"--namespace={namespace}")
        ready.kubectl("wait", *pod, "--for=condition=Ready", "--timeout=90s")
        uid = ready.objects(*pod)["metadata"]["uid"]
        option = ("-e", f"verify_smoke_namespace={namespace}")
        assert verdicts(*PROOF_ALONE, *option) == {"gpu-2": {"NODE_FULL"}}
        assert ready.objects(*pod)["metadata"]["uid"] == uid
        urgent = ("-e", "verify_smoke_priority_class=system-node-critical")
        assert verdicts(*PROOF_ALONE, *option, *urgent) == {"gpu-2": {"PRIORITY_CLASS_UNFIT"}}
        assert ready.objects(*pod)["metadata"]["uid"] == uid


@pytest.mark.parametrize(
    ("variable", "code"),
    [
        ("verify_smoke_namespace", "NAMESPACE_MISSING"),
        ("verify_smoke_runtime_class", "RUNTIME_CLASS_MISSING"),
        ("verify_smoke_priority_class", "PRIORITY_CLASS_UNFIT"),
    ],
)
def test_pod_wants_what_the_cluster_does_not_have(verdicts, variable, code):
    assert verdicts(*PROOF_ALONE, "-e", f"{variable}=nobody-has-it") == {"gpu-2": {code}}


def test_api_server_that_goes_away_for_good(ready, verdicts):
    """Each node is in the table, and the run ends within the time that the modules are patient."""
    away = Stalled(ready.facts["processes"]["kube-apiserver"])
    away.timer = threading.Timer(600, away.end)
    try:
        found = verdicts(CONTAINERD, "-e", "verify_drift=false", watch=away.when_the_pods_begin)
    finally:
        away.timer.cancel()
        away.end()
    assert found == {"gpu-1": {"CLUSTER_UNUSABLE"}, "gpu-2": {"CLUSTER_UNUSABLE"}}
    assert verdicts.seconds < 240


def test_node_that_leaves_the_cluster_while_its_pod_runs(ready, verdicts):
    """Its object is deleted; the kubelet registers anew when it starts."""
    gone = []

    def delete(line: str) -> None:
        if "Prove every free GPU in a pod" in line and not gone:
            ready.kubectl("delete", "node", "gpu-2", "--wait=false")
            gone.append(line)

    try:
        found = verdicts(*PROOF_ALONE, watch=delete)
    finally:
        ready.host("gpu-2").check_output("systemctl restart kubelet")
        ready.kubectl("wait", "--for=create", "node/gpu-2", "--timeout=60s")
        ready.kubectl("label", "node", "gpu-2", f"{LABEL}=true")
        # The pods of the former node go with it.
        ready.kubectl("rollout", "status", *PLUGIN, "--timeout=90s")
        await_registration(ready, "gpu-2")
    assert found["gpu-2"] & {"SMOKE_FAILED", "NODE_NOT_IN_CLUSTER", "POD_NOT_SCHEDULED"}


# -------------------------------------------------------------------------------------------------
# The device plugin

CDI = "/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json"


def test_evicted_by_a_taint_and_devices_that_no_specification_has(ready, verdicts):
    ready.kubectl("taint", "node", "gpu-1", "repair=now:NoExecute")
    ready.host("gpu-2").check_output("mv %s /root/cdi.json", CDI)
    try:
        offers(ready, "gpu-1", 0)
        found = verdicts(CONTAINERD, "-e", "verify_capacity_timeout=1")
    finally:
        ready.host("gpu-2").check_output("mv /root/cdi.json %s", CDI)
        ready.kubectl("taint", "node", "gpu-1", "repair=now:NoExecute-")
    assert found == {"gpu-1": {"NODE_TAINTED"}, "gpu-2": {"CDI_UNRESOLVABLE"}}
    offers(ready, "gpu-1", 4)


def test_label_gone_and_pods_kept_away_by_a_taint(ready, verdicts):
    ready.kubectl("label", "node", "gpu-1", f"{LABEL}-")
    ready.kubectl("taint", "node", "gpu-2", "repair=soon:NoSchedule")
    try:
        offers(ready, "gpu-1", 0)
        found = verdicts(CONTAINERD, "-e", "verify_capacity_timeout=1")
    finally:
        ready.kubectl("taint", "node", "gpu-2", "repair=soon:NoSchedule-")
        ready.kubectl("label", "node", "gpu-1", f"{LABEL}=true")
    assert found == {"gpu-1": {"DEVICE_PLUGIN_NOT_SELECTED"}, "gpu-2": {"NODE_TAINTED"}}
    offers(ready, "gpu-1", 4)


def of_its_own(daemonset: Any, name: str, node: str) -> Any:
    """Return the DaemonSet of the device plugin under another name, for one node."""
    spec = json.loads(json.dumps(daemonset["spec"]))
    spec["selector"]["matchLabels"] = spec["template"]["metadata"]["labels"] = {"app": name}
    spec["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    metadata = {"name": name, "namespace": "kube-system"}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


@contextmanager
def without_plugin(laboratory: Any, ours: Any) -> Iterator[None]:
    """Delete the DaemonSet of the device plugin for a while. It is back before its pods."""
    laboratory.kubectl("delete", "--cascade=foreground", *PLUGIN)
    try:
        yield
    finally:
        metadata = {key: ours["metadata"][key] for key in ("name", "namespace", "labels")}
        again = json.dumps({**ours, "metadata": metadata})
        laboratory.kubectl("apply", "--server-side", "-f", "-", stdin=again)
        laboratory.kubectl("rollout", "status", *PLUGIN, "--timeout=90s")
        for node in ("gpu-1", "gpu-2"):
            offers(laboratory, node, laboratory.gpu_count[node])


def stuck(laboratory: Any, name: str, reason: str) -> None:
    """Wait until the container of a DaemonSet's pod waits for this reason."""
    laboratory.kubectl(
        "wait",
        "pod",
        "--namespace=kube-system",
        f"--selector=app={name}",
        "--timeout=90s",
        f"--for=jsonpath={{.status.containerStatuses[0].state.waiting.reason}}={reason}",
    )


def test_daemonset_gone_image_that_nobody_has_and_crashes(ready, verdicts):
    ours = ready.objects(*PLUGIN)
    with without_plugin(ready, ours):
        for node in ("gpu-1", "gpu-2"):
            offers(ready, node, 0)
        missing = verdicts(CONTAINERD, *WITHOUT_PODS)

        image, crash = of_its_own(ours, "image", "gpu-1"), of_its_own(ours, "crash", "gpu-2")
        (container,) = image["spec"]["template"]["spec"]["containers"]
        container["image"] = container["image"].replace("nvcr.io", "registry.invalid")
        (container,) = crash["spec"]["template"]["spec"]["containers"]
        container["args"] = ["--no-such-flag"]
        with applied(ready, image, crash):
            stuck(ready, "image", "ImagePullBackOff")
            stuck(ready, "crash", "CrashLoopBackOff")
            broken = verdicts(CONTAINERD, *WITHOUT_PODS)
    assert missing == {node: {"DEVICE_PLUGIN_MISSING"} for node in ("gpu-1", "gpu-2")}
    assert broken == {
        "gpu-1": {"DEVICE_PLUGIN_IMAGE_UNAVAILABLE"},
        "gpu-2": {"DEVICE_PLUGIN_CRASHES"},
    }
    offers(ready, "gpu-1", 4)
    offers(ready, "gpu-2", 1)


def test_label_that_is_missing_is_not_waited_for(ready, verdicts):
    """The whole time limit would be 2 minutes."""
    ready.kubectl("label", "node", "gpu-2", f"{LABEL}-")
    try:
        offers(ready, "gpu-2", 0)
        found = verdicts(*PROOF_ALONE)
    finally:
        ready.kubectl("label", "node", "gpu-2", f"{LABEL}=true")
    assert found == {"gpu-2": {"DEVICE_PLUGIN_NOT_SELECTED"}}
    assert verdicts.seconds < 45
    offers(ready, "gpu-2", 1)


def test_specification_twice_and_of_a_device_that_is_gone(ready, verdicts):
    """Two files have the same device on gpu-1. On gpu-2, a file has a device that is not there."""
    twice, stale = ready.host("gpu-1"), ready.host("gpu-2")
    copy = "/var/run/cdi/copy-of-it.json"
    twice.check_output("sed 's|/dev/nvidia0|/dev/nvidia1|' %s > %s", CDI, copy)
    stale.check_output(
        "cp %s /root/cdi.json && sed -i 's|/dev/nvidia0|/dev/nvidia9|g' %s", CDI, CDI
    )
    try:
        found = verdicts(CONTAINERD, "-e", "verify_capacity_timeout=1")
    finally:
        twice.check_output("rm %s", copy)
        stale.check_output("mv /root/cdi.json %s", CDI)
    assert found == {
        "gpu-1": {"CDI_UNRESOLVABLE"},
        "gpu-2": {"CDI_UNRESOLVABLE"},
    }
    assert "CDI_DEVICE_TWICE gpu-1: " in ready.printed[-1][1]


DRA = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "dra", "namespace": "kube-system"},
    "spec": {
        "selector": {"matchLabels": {"app": "dra"}},
        "template": {
            "metadata": {"labels": {"app": "dra"}},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": "gpu-1"},
                "containers": [
                    {
                        "name": "gpus",
                        "image": "registry.k8s.io/pause:3.10.1",
                        "args": ["gpu-kubelet-plugin"],
                    }
                ],
            },
        },
    },
}


def test_full_node_and_driver_for_dynamic_resource_allocation_beside_the_plugin(ready, verdicts):
    """The plugin of gpu-2 asks for more than the node has."""
    ours = ready.objects(*PLUGIN)
    full = of_its_own(ours, "full", "gpu-2")
    (container,) = full["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": "1000"}}
    ready.kubectl("label", "node", "gpu-2", f"{LABEL}-")
    try:
        offers(ready, "gpu-2", 0)
        with applied(ready, DRA, full):
            found = verdicts(CONTAINERD, *WITHOUT_PODS)
    finally:
        ready.kubectl("label", "node", "gpu-2", f"{LABEL}=true")
    assert found == {"gpu-1": {"DRA_DRIVER_BESIDE"}, "gpu-2": {"NODE_FULL"}}
    offers(ready, "gpu-2", 1)


def test_second_plugin_and_the_registration_that_is_left_of_it(ready, verdicts):
    """The first plugin starts anew beside the second: the kubelet keeps its old connection.

    The amounts stay right, the plugin is Running and ready. Only a restart of the kubelet helps.
    """
    second = of_its_own(ready.objects(*PLUGIN), "second", "gpu-1")
    of_node = ("--namespace=kube-system", "--field-selector=spec.nodeName=gpu-1")
    with applied(ready, second):
        ready.kubectl("wait", "pod", *of_node[:1], "--selector=app=second",
                      "--for=condition=Ready", "--timeout=90s")  # fmt: skip
        both = verdicts("--limit=gpu-1", *WITHOUT_PODS)
        ours = "--selector=app.kubernetes.io/name=nvidia-device-plugin"
        ready.kubectl("delete", "pods", *of_node, ours)
    left = verdicts("--limit=gpu-1", "-e", "verify_drift=false")
    words = verdicts.words
    ready.host("gpu-1").check_output("systemctl restart kubelet")
    await_registration(ready, "gpu-1")
    assert both == {"gpu-1": {"DEVICE_PLUGIN_TWICE"}}
    assert left == {"gpu-1": {"DEVICE_PLUGIN_UNREGISTERED"}}
    assert "systemctl restart kubelet" in words


def await_registration(laboratory: Any, node: str) -> None:
    """Wait until the plugin of a node has registered since the kubelet started."""
    selector = "--selector=app.kubernetes.io/name=nvidia-device-plugin"
    of_node = ("--namespace=kube-system", f"--field-selector=spec.nodeName={node}", selector)
    deadline = time.monotonic() + 120
    while not _is_registered(laboratory, *of_node):
        assert time.monotonic() < deadline, f"the plugin of {node} has not registered"
    offers(laboratory, node, laboratory.gpu_count[node])


def _is_registered(laboratory: Any, *of_node: str) -> bool:
    pods = laboratory.objects("pods", *of_node)["items"]
    names = [
        pod["metadata"]["name"]
        for pod in pods
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]
    try:
        logs = [laboratory.kubectl("logs", of_node[0], name).splitlines() for name in names]
    except AssertionError:
        return False  # the kubelet does not answer yet
    told = [line for log in logs for line in log if "Registered" in line or "already" in line]
    return bool(told) and "Registered device plugin" in told[-1]


def test_memory_pressure_and_a_cordoned_node(ready, verdicts):
    """A cordon keeps no pod of a DaemonSet away, and those of the proof tolerate it."""
    config, host = "/var/lib/kubelet/config.yaml", ready.host("gpu-1")
    restart = "systemctl restart kubelet"
    soft = (
        "evictionSoft: {memory.available: 900Gi}\nevictionSoftGracePeriod: {memory.available: 1s}"
    )
    host.check_output(
        "cp --preserve %s /root/good && echo %s >> %s && " + restart, config, soft, config
    )
    ready.kubectl("cordon", "gpu-2")
    try:
        ready.kubectl("wait", "--for=condition=MemoryPressure", "node/gpu-1", "--timeout=60s")
        found = verdicts(CONTAINERD, "-e", "verify_capacity_timeout=1", "-e", "verify_drift=false")
    finally:
        ready.kubectl("uncordon", "gpu-2")
        host.check_output("mv /root/good %s && " + restart, config)
        path = "--for=condition=MemoryPressure=false"
        ready.kubectl("wait", path, "node/gpu-1", "--timeout=60s")
    assert found == {"gpu-1": {"NODE_PRESSURE"}, "gpu-2": set()}


def test_plugin_in_a_namespace_that_takes_no_pods_with_folders_of_the_node(
    ready, verdicts, namespace
):
    """Pod Security says so in an event of the DaemonSet."""
    ours = ready.objects(*PLUGIN)
    secured = of_its_own(ours, "secured", "gpu-2")
    secured["metadata"]["namespace"] = namespace
    with pod_security(ready, "baseline"), without_plugin(ready, ours), applied(ready, secured):
        offers(ready, "gpu-2", 0)
        found = verdicts("--limit=gpu-2", *WITHOUT_PODS)
    assert found == {"gpu-2": {"POD_REJECTED"}}


def expired_kubeconfig(kubeconfig: str, node: str) -> str:
    """Return the kubeconfig of a kubelet whose client certificate has expired."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
    ]
    certificate = (
        x509.CertificateBuilder(x509.Name(names), x509.Name(names), key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2021, 1, 1, tzinfo=UTC))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    content = yaml.safe_load(kubeconfig)
    content["users"][0]["user"] = {
        "client-certificate-data": base64.b64encode(certificate.public_bytes(pem)).decode(),
        "client-key-data": base64.b64encode(key.private_bytes(pem, *plain)).decode(),
    }
    return yaml.safe_dump(content)


def test_kubelet_whose_certificate_has_expired(ready, verdicts):
    """It ends, and speaks of a file for its first start. The document knows that."""
    host, path = ready.host("gpu-2"), "/etc/kubernetes/kubelet.conf"
    expired = expired_kubeconfig(host.file(path).content_string, "gpu-2")
    host.check_output(
        "cp --preserve %s /root/kubelet.conf && printf %%s %s > %s", path, expired, path
    )
    host.check_output("systemctl restart kubelet")
    try:
        found = verdicts(*PROOF_ALONE)
    finally:
        host.check_output("mv /root/kubelet.conf %s && systemctl restart kubelet", path)
        ready.kubectl("wait", "--for=condition=Ready", "node/gpu-2", "--timeout=90s")
        await_registration(ready, "gpu-2")
    assert found == {"gpu-2": {"KUBELET_STOPPED"}}
    assert "unable to load bootstrap kubeconfig" in verdicts.words


def test_all_is_well_again(verdicts):
    assert verdicts(CONTAINERD) == {"gpu-1": set(), "gpu-2": set()}
