# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.cluster import plugin_causes
from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import NodeStatus
from ansible_collections.metal.gpu.plugins.module_utils.cluster.scheduling import Taint
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding

FIXTURES = Path(__file__).parents[3] / "fixtures/kubernetes"
LOGS = yaml.safe_load((FIXTURES / "plugin_logs.yml").read_text(encoding="utf-8"))
SCENES = yaml.safe_load((FIXTURES / "refusals.yml").read_text(encoding="utf-8"))
LABEL = {"nvidia.com/gpu.present": "true"}
ML = Taint("dedicated", "ml", "NoSchedule")
DISK = Taint("node.kubernetes.io/disk-pressure", "", "NoSchedule")


def status(
    capacity: int | None = 0,
    allocatable: int | None = 0,
    ready: bool | None = True,
    labels: dict[str, str] = LABEL,
    *taints: Taint,
) -> NodeStatus:
    amounts = [None if amount is None else Decimal(amount) for amount in (capacity, allocatable)]
    troubles = {} if ready else {"Ready": "the kubelet is silent"}
    return NodeStatus(amounts[0], amounts[1], ready, troubles, labels, taints)


HEALTHY = status(4, 4)


def template(**spec: Any) -> dict[str, Any]:
    image = "nvcr.io/nvidia/k8s-device-plugin:v0.19.3"
    return {
        "containers": [{"name": "plugin", "image": image}],
        "volumes": [{"hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
        **spec,
    }


def daemonset(name: str = "nvdp", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "kube-system"}
    return {"metadata": metadata, "spec": {"template": {"spec": template(**spec)}}}


def pod(**status: Any) -> dict[str, Any]:
    metadata = {"name": "nvdp-x", "namespace": "kube-system"}
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    return {
        "metadata": metadata,
        "spec": {"nodeName": "gpu-1", "tolerations": tolerations},
        "status": {"phase": "Running", **status},
    }


def container(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "p", "ready": False, "state": state, **more}]}


def waits(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    return container({"waiting": {"reason": reason, "message": message}}, **more)


def unscheduled(scene: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return pod(phase="Pending", conditions=[{**condition, **SCENES[scene]}])


EVICTED = pod(
    phase="Failed",
    reason="Evicted",
    message="The node was low on resource: ephemeral-storage. ",
)
RUNS = pod(**container({"running": {}}))
CRASHED = container({"terminated": {"exitCode": 2, "reason": "Error"}})
CRASHES = waits("CrashLoopBackOff", "back-off 5m0s restarting failed container")
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "model", "operator": "In", "values": ["h100"]}]}
            ]
        }
    }
}
NO_RUNTIME = {
    "involvedObject": {"kind": "Pod", "name": "nvdp-x"},
    "type": "Warning",
    "reason": "FailedCreatePodSandBox",
    "message": 'failed to get sandbox runtime: no runtime for "nvidia" is configured',
}
OVER_QUOTA = {
    "involvedObject": {"kind": "DaemonSet", "name": "nvdp"},
    "type": "Warning",
    "reason": "FailedCreate",
    **SCENES["daemonset_over_quota"],
}


def facts(
    node: NodeStatus = HEALTHY,
    pods: list[dict[str, Any]] | None = None,
    daemonsets: list[dict[str, Any]] | None = None,
    log: str = "healthy",
    events: list[dict[str, Any]] | None = None,
) -> plugin_causes.Facts:
    logs = {"nvdp-x": LOGS[log]}
    return plugin_causes.Facts("gpu-1", node, daemonsets, pods or [], logs, events or [])


OURS = [daemonset(nodeSelector=LABEL)]


@pytest.mark.parametrize(
    ("found", "code", "words", "remedy"),
    [
        pytest.param(
            facts(daemonsets=[]), "DEVICE_PLUGIN_MISSING", "has no DaemonSet", "device_plugin`",
            id="no DaemonSet",
        ),
        pytest.param(
            facts(status(labels={}), daemonsets=OURS), "DEVICE_PLUGIN_NOT_SELECTED",
            "the label nvidia.com/gpu.present=true, but this node does not have it",
            "`kubectl label --overwrite node gpu-1 nvidia.com/gpu.present=true`", id="no label",
        ),
        pytest.param(
            facts(status(labels={"nvidia.com/gpu.present": "false"}), daemonsets=OURS),
            "DEVICE_PLUGIN_NOT_SELECTED", "but this node has nvidia.com/gpu.present=false",
            "gpu.present=true`", id="other label",
        ),
        pytest.param(
            facts(daemonsets=[daemonset(affinity=AFFINITY)]), "DEVICE_PLUGIN_AFFINITY",
            "excludes this node: it requires model In (h100)",
            "`kubectl --namespace kube-system edit daemonset nvdp`", id="affinity",
        ),
        pytest.param(
            facts(status(0, 0, True, LABEL, ML), daemonsets=OURS), "NODE_TAINTED",
            "the device plugin kube-system/nvdp does not run, because it does not tolerate the "
            "node's taint dedicated=ml:NoSchedule",
            "add a toleration to device_plugin_tolerations", id="taint",
        ),
        pytest.param(
            facts(daemonsets=OURS, events=[OVER_QUOTA]), "POD_OVER_QUOTA",
            "the ResourceQuota none in the namespace kube-system rejects the device plugin",
            "device_plugin_namespace", id="quota",
        ),
        pytest.param(
            facts(pods=[EVICTED]), "NODE_PRESSURE",
            "under disk pressure: The node was low on resource", "kubelet", id="evicted",
        ),
        pytest.param(
            facts(status(0, 0, True, LABEL, ML), [unscheduled("unschedulable_taint")]),
            "NODE_TAINTED", "taint dedicated=ml:NoSchedule", "kubectl taint", id="not scheduled",
        ),
        pytest.param(
            facts(pods=[unscheduled("unschedulable_pods")]), "NODE_FULL", "Too many pods",
            "spec.nodeName=gpu-1", id="full",
        ),
        pytest.param(
            facts(pods=[pod(phase="Pending", **waits("ErrImagePull", "not found"))]),
            "DEVICE_PLUGIN_IMAGE_UNAVAILABLE", "ErrImagePull: not found", "device_plugin_image",
            id="image",
        ),
        pytest.param(
            facts(pods=[pod(**CRASHES)], log="crash"), "DEVICE_PLUGIN_CRASHES", "exit status 2",
            "logs nvdp-x --previous", id="crashes",
        ),
        pytest.param(
            facts(pods=[pod(**CRASHED)], log="crash"), "DEVICE_PLUGIN_CRASHES", "exit status 2",
            "logs nvdp-x --previous", id="has just crashed",
        ),
        pytest.param(
            facts(pods=[pod(**CRASHES)], log="blind_ends"), "DEVICE_PLUGIN_BLIND",
            "sees no GPU: ", "--tags runtime", id="crashes without GPUs",
        ),
        pytest.param(
            facts(pods=[pod(**waits("CrashLoopBackOff", lastState={"terminated": {
                "message": "failed to create the automatic CDI modifier: GPU is lost"}}))]),
            "GPU_BLOCKS_CONTAINERS", "a GPU of the node is lost", "until then", id="lost, crashes",
        ),
        pytest.param(
            facts(pods=[pod(**waits("RunContainerError", "could not create CDI: GPU is lost"))]),
            "GPU_BLOCKS_CONTAINERS", "a GPU of the node is lost", "reboot", id="lost",
        ),
        pytest.param(
            facts(pods=[pod(**waits("CreateContainerError", "unresolvable CDI devices a/b=0"))]),
            "CDI_UNRESOLVABLE", "a/b=0", "nvidia-ctk cdi list", id="CDI",
        ),
        pytest.param(
            facts(pods=[pod(**waits("CreateContainerConfigError", 'secret "a" not found'))]),
            "DEVICE_PLUGIN_NOT_STARTED", 'secret "a" not found', "describe pod nvdp-x", id="config",
        ),
        pytest.param(
            facts(pods=[pod(**waits("ContainerCreating"))], events=[NO_RUNTIME]),
            "RUNTIME_HANDLER_MISSING",
            "the device plugin kube-system/nvdp-x needs the runtime nvidia, which",
            "--tags runtime", id="runtime",
        ),
        pytest.param(
            facts(status(4, 0), [RUNS], log="unregistered"), "DEVICE_PLUGIN_UNREGISTERED",
            "device plugin already connected: /var/lib/kubelet",
            "`systemctl restart kubelet`", id="registration is dead",
        ),
        pytest.param(
            facts(pods=[RUNS], log="blind"), "DEVICE_PLUGIN_BLIND",
            "No devices found. Waiting indefinitely.", "nvidia-smi", id="blind",
        ),
        pytest.param(
            facts(status(4, 3), [RUNS], log="xid"), "GPU_UNHEALTHY",
            "'nvidia.com/gpu' device marked unhealthy: GPU-e47efc7b-a9d6-5852-880e-5d93536eeb14",
            "only after that, run `kubectl --namespace kube-system delete pod",
            id="unhealthy",
        ),
        pytest.param(
            facts(status(4, 3), [RUNS], log="xid_then_skipped"), "GPU_UNHEALTHY",
            "Xid=79 on Device=GPU-e47efc7b-a9d6-5852-880e-5d93536eeb14", "", id="noise after it",
        ),
        pytest.param(
            facts(status(4, 0), [RUNS], log="all_unhealthy"), "GPU_UNHEALTHY",
            "Error waiting for event: Unknown Error", "", id="all unhealthy",
        ),
        pytest.param(
            facts(status(4, 3), [RUNS], log="too_old"), "GPU_UNHEALTHY", "Not Supported", "",
            id="cannot be watched",
        ),
        pytest.param(
            facts(status(4, 4, None)), "NODE_NOT_READY", "is not ready: the kubelet is silent",
            "systemctl status kubelet", id="silent kubelet",
        ),
    ],
)  # fmt: skip
def test_each_cause_has_a_finding_of_its_own(
    found: plugin_causes.Facts, code: str, words: str, remedy: str
) -> None:
    cause = plugin_causes.find_cause(found)
    assert cause is not None
    assert cause.code == code
    told = finding(code, "gpu-1", counted="capacity is 0 of 4 GPUs", **cause.evidence)
    assert words in told["message"]
    assert remedy in told["remedy"]


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(facts(pods=[RUNS]), id="runs"),
        pytest.param(facts(pods=[RUNS], log="registered_again"), id="registered again"),
        pytest.param(facts(status(4, 4), [RUNS], log="xid"), id="unhealthy once"),
        pytest.param(facts(status(4, 3), [RUNS], log="skipped"), id="events that are skipped"),
        pytest.param(facts(pods=[EVICTED, RUNS]), id="evicted once"),
        pytest.param(facts(pods=[RUNS], log="saw_none_once"), id="saw no GPU once"),
        pytest.param(facts(daemonsets=None), id="DaemonSets withheld"),
        pytest.param(facts(daemonsets=OURS), id="not created yet"),
        pytest.param(facts(pods=[pod(**waits("ContainerCreating"))]), id="starts"),
        pytest.param(facts(pods=[{**RUNS, "status": {}}]), id="no status"),
        pytest.param(
            facts(status(0, 0, True, LABEL, DISK), daemonsets=OURS), id="tolerated by DaemonSets"
        ),
    ],
)
def test_nothing_is_claimed_where_nothing_is_known(found: plugin_causes.Facts) -> None:
    assert plugin_causes.find_cause(found) is None


NETWORK = daemonset("sriov", containers=[{"name": "a", "image": "ghcr.io/k8snetwork/sriov:1"}])
MIRRORED = daemonset("gpus", containers=[{"name": "a", "image": "mirror.example/gpu-plugin:1"}])
AMD = daemonset("amdgpu", containers=[{"name": "a", "image": "rocm/k8s-device-plugin"}])
HAMI = daemonset(
    "hami",
    containers=[{"name": "a", "image": "projecthami/hami:v2", "command": ["nvidia-device-plugin"]}],
)
AGENT = {**daemonset("nvidia-agent"), "spec": {"template": {"spec": {"containers": []}}}}


@pytest.mark.parametrize(
    ("daemonsets", "resource", "names"),
    [
        pytest.param([NETWORK, daemonset()], "nvidia.com/gpu", ["nvdp"], id="network cards"),
        pytest.param([MIRRORED], "nvidia.com/gpu", ["gpus"], id="mirrored under another name"),
        pytest.param([AMD, daemonset()], "nvidia.com/gpu", ["nvdp"], id="AMD's beside"),
        pytest.param([AMD], "nvidia.com/gpu", [], id="only AMD's"),
        pytest.param([NETWORK, HAMI], "nvidia.com/gpu", ["hami"], id="known by its program"),
        pytest.param([AGENT], "nvidia.com/gpu", [], id="no device plugin"),
        pytest.param([NETWORK, daemonset()], "x.com/nic", ["sriov", "nvdp"], id="other resource"),
    ],
)
def test_which_daemonsets_can_register_gpus(
    daemonsets: list[dict[str, Any]], resource: str, names: list[str]
) -> None:
    found = plugin_causes.choose_plugins(daemonsets, resource)
    assert [one["metadata"]["name"] for one in found] == names


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("healthy", "Registered device plugin for"),
        ("xid", "device marked unhealthy: GPU-e47"),
        ("skipped", "Registered device plugin for"),
        ("skipped_only", ""),
        ("xid_then_skipped", "XidCriticalError: Xid=79 on Device=GPU-e47"),
        ("unregistered", "already connected"),
        ("blind", "No devices found"),
        ("crash", "exit status 2"),
        ("registered_again", "Registered device plugin for"),
    ],
)
def test_the_line_that_tells_most(log: str, line: str) -> None:
    told = plugin_causes.telling_line(LOGS[log])
    assert line in told
    assert bool(told) is bool(line)
    assert plugin_causes.telling_line([]) == ""
