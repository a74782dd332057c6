# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.cluster import smoke_causes, smoke_pod
from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import NodeStatus
from ansible_collections.metal.gpu.plugins.module_utils.cluster.scheduling import Taint
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_pod import Request
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_verdict import Verdict
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding

FIXTURES = Path(__file__).parents[3] / "fixtures/kubernetes"
PODS = yaml.safe_load((FIXTURES / "pods.yml").read_text(encoding="utf-8"))
SCENES = yaml.safe_load((FIXTURES / "refusals.yml").read_text(encoding="utf-8"))
GPU = "nvidia.com/gpu"
WISH = Request("gpu-1", 2, "failed")
TEMPLATE = smoke_pod.Template("run", "", "tests", "image", GPU, None, (), (), 300)
READY = NodeStatus(Decimal(4), Decimal(4), True, {}, {})
ML = Taint("dedicated", "ml", "NoSchedule")


def judged(scene: str) -> Verdict:
    found = smoke_pod.judge({"status": PODS[scene]}, WISH, GPU)
    return found._replace(state=found.state or "failed")


def refused(scene: str) -> Verdict:
    return Verdict(
        "failed", "", "the API server rejected the pod", refusal=SCENES[scene]["message"]
    )


def unscheduled(scene: str) -> Verdict:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"phase": "Pending", "conditions": [{**condition, **SCENES[scene]}]}
    return Verdict("failed", "Pending", SCENES[scene]["message"], status=status)


def facts(
    verdict: Verdict,
    node: NodeStatus | None = READY,
    silence: str = "",
    *events: dict[str, str],
) -> smoke_causes.Facts:
    return smoke_causes.Facts(WISH, verdict, TEMPLATE, events, node, silence)


def not_ready(why: str, ready: bool | None = None) -> NodeStatus:
    return READY._replace(ready=ready, troubles={"Ready": why})


SANDBOX = {
    "type": "Warning",
    "reason": "FailedCreatePodSandBox",
    "message": 'no runtime for "nvidia" is configured',
}
DNS = {"type": "Warning", "reason": "DNSConfigForming", "message": "Nameserver limits exceeded"}


BOUND = Verdict(
    "failed",
    "Pending",
    "the pod did not finish within 300 s: Pending",
    status={"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
)
PULLING = {"type": "Normal", "reason": "Pulling", "message": 'Pulling image "image"'}


@pytest.mark.parametrize(
    ("found", "code", "words", "remedy"),
    [
        pytest.param(
            facts(BOUND), "DEVICE_PLUGIN_HANGS", "has not begun with the smoke pod for 60 s",
            "delete the pod of the device plugin", id="the plugin answers no request",
        ),
        pytest.param(
            facts(judged("creating"), READY, "", PULLING), "SMOKE_IMAGE_UNAVAILABLE",
            "the registry of image has not given it within 300 s", "verify_smoke_image",
            id="the registry hangs",
        ),
        pytest.param(
            facts(refused("quota")), "POD_OVER_QUOTA", "gpus in the namespace tests rejects",
            "verify_smoke_namespace", id="quota",
        ),
        pytest.param(
            facts(refused("policy")), "POD_REJECTED", "images.example.com rejects the smoke pod",
            "exempt the namespace tests", id="policy",
        ),
        pytest.param(
            facts(refused("runtime_class")), "RUNTIME_CLASS_MISSING", "RuntimeClass nvidia",
            "verify_smoke_runtime_class", id="RuntimeClass",
        ),
        pytest.param(
            facts(judged("not_admitted")), "POD_NOT_ADMITTED", "Requested: 2, Available: 1",
            "do not restart the kubelet while a GPU is lost", id="not admitted",
        ),
        pytest.param(
            facts(judged("dead_plugin")), "DEVICE_PLUGIN_UNREGISTERED",
            "nvidia-gpu.sock: connect: no such file",
            "`systemctl restart kubelet`", id="registration is dead",
        ),
        pytest.param(
            facts(Verdict("failed", "Failed", "x", status={
                "reason": "Evicted", "message": "The node had condition: [DiskPressure]. "})),
            "NODE_PRESSURE", "under disk pressure", "describe node gpu-1", id="evicted",
        ),
        pytest.param(
            facts(judged("no_image")), "SMOKE_IMAGE_UNAVAILABLE", "registry.example/cuda:13",
            "verify_smoke_image", id="image",
        ),
        pytest.param(
            facts(judged("no_image")._replace(message="tls: failed to verify certificate: x509: "
                "certificate signed by unknown authority")), "REGISTRY_UNTRUSTED",
            "the registry of ", "set ca in registries_hosts", id="CA of a registry",
        ),
        pytest.param(
            facts(judged("no_image"), READY, "", {"type": "Warning", "reason": "Failed",
                "message": 'Failed to pull image "x": no match for platform in manifest'}),
            "IMAGE_PLATFORM_MISSING", "does not exist for the architecture of",
            "verify_smoke_image", id="image of another architecture",
        ),
        pytest.param(
            facts(judged("no_cdi_device")), "CDI_UNRESOLVABLE", "nvidia.com/gpu=0",
            "nvidia-ctk cdi list", id="CDI",
        ),
        pytest.param(
            facts(unscheduled("unschedulable_taint"), READY._replace(taints=(ML,))),
            "NODE_TAINTED", "taint dedicated=ml:NoSchedule",
            "kubectl taint node gpu-1 dedicated:NoSchedule-", id="taint",
        ),
        pytest.param(
            facts(unscheduled("unschedulable_gpus")), "NODE_FULL",
            "no room for the smoke pod: Insufficient nvidia.com/gpu", "spec.nodeName=gpu-1",
            id="other pods have them",
        ),
        pytest.param(
            facts(unscheduled("unschedulable_gpus"), READY._replace(allocatable=Decimal(0))),
            "GPUS_NOT_ALLOCATABLE", "needs 2 nvidia.com/gpu, but the node has 0 allocatable",
            "kubectl describe node", id="there are none",
        ),
        pytest.param(
            facts(unscheduled("unschedulable_gpus"), READY._replace(allocatable=Decimal(3)))
            ._replace(request=Request("gpu-1", 2, "busy", ("ml/a",), allocatable=4)),
            "ALLOCATABLE_DIFFERS", "the node has 4 GPUs, but the cluster can allocate 3; ",
            "kubectl describe node", id="there are fewer than before",
        ),
        pytest.param(
            facts(unscheduled("unschedulable_pods")), "NODE_FULL", "Too many pods",
            "spec.nodeName=gpu-1", id="too many pods",
        ),
        pytest.param(
            facts(judged("creating"), READY, "", SANDBOX, DNS), "RUNTIME_HANDLER_MISSING",
            "the smoke pod needs the runtime nvidia, which", "--tags runtime", id="runtime",
        ),
        pytest.param(
            facts(judged("creating"), not_ready("Kubelet stopped posting node status")),
            "NODE_NOT_READY", "is not ready: Kubelet stopped posting", "systemctl status kubelet",
            id="kubelet is known dead",
        ),
        pytest.param(
            facts(judged("creating"), not_ready("container runtime is down", ready=False)),
            "ENGINE_SILENT", "container runtime is down", "systemctl status containerd",
            id="engine is down",
        ),
        pytest.param(
            facts(judged("creating"), READY, "last renewed its Lease 63 s ago"), "KUBELET_SILENT",
            "the kubelet of gpu-1 does not report: last renewed its Lease 63 s ago",
            "journalctl -u kubelet", id="kubelet is silent",
        ),
        pytest.param(
            facts(judged("running"), READY, "last renewed its Lease 63 s ago"), "KUBELET_SILENT",
            "does not report", "kubelet", id="kubelet died while the pod ran",
        ),
        pytest.param(
            facts(judged("new")), "POD_NOT_SCHEDULED", "no scheduler placed the smoke pod",
            "component=kube-scheduler", id="no scheduler",
        ),
    ],
)  # fmt: skip
def test_each_cause_has_a_finding_of_its_own(
    found: smoke_causes.Facts, code: str, words: str, remedy: str
) -> None:
    cause = smoke_causes.find_cause(found)
    assert cause is not None
    assert cause.code == code
    told = finding(code, "gpu-1", **cause.evidence)
    assert words in told["message"]
    assert remedy in told["remedy"]
    assert len(told["message"]) < 480


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(facts(judged("two_gpus")), id="ok"),
        pytest.param(facts(judged("mismatch")), id="nvidia-smi failed"),
        pytest.param(facts(judged("gpu_lost")), id="nvidia-smi misses one"),
        pytest.param(facts(judged("too_long")), id="took too long"),
        pytest.param(facts(judged("creating")), id="slow"),
        pytest.param(facts(judged("creating"), None), id="nodes withheld"),
        pytest.param(facts(unscheduled("unschedulable_taint")), id="taint is gone again"),
        pytest.param(
            facts(unscheduled("unschedulable_gpus"))._replace(
                request=Request("gpu-1", 2, "busy", allocatable=4)
            ),
            id="nobody has them",
        ),
        pytest.param(facts(Verdict("failed", "", "another client deleted the pod")), id="deleted"),
        pytest.param(facts(Verdict("unknown", "", "no answer")), id="unknown"),
    ],
)
def test_nothing_is_claimed_where_nothing_is_known(found: smoke_causes.Facts) -> None:
    assert smoke_causes.find_cause(found) is None


def lease(renewed: str | None, lasts_s: int | None = 40) -> dict[str, Any]:
    """Form: a Lease of kubernetes v1.37.1; renewTime has microseconds."""
    return {"spec": {"renewTime": renewed, "leaseDurationSeconds": lasts_s}}


OLD = lease("2020-01-01T00:00:00.446738Z")
RENEWED = lease("2020-01-01T00:00:10.446738Z")


@pytest.mark.parametrize(
    ("looks", "silence"),
    [
        pytest.param([(OLD, 0)], "", id="the clock of the node is years slow"),
        pytest.param([(OLD, 0), (OLD, 40)], "", id="not for long enough"),
        pytest.param(
            [(OLD, 5), (OLD, 15), (OLD, 46)],
            "the kubelet has not renewed its Lease for 41 s, but the Lease lasts 40 s",
            id="silent",
        ),
        pytest.param([(OLD, 0), (RENEWED, 39), (RENEWED, 70)], "", id="renewed in between"),
        pytest.param([(RENEWED, 0), (OLD, 50)], "", id="the clock of the node was set back"),
        pytest.param(
            [(lease("2020-01-01T00:00:00Z", None), 0), (lease("2020-01-01T00:00:00Z", None), 41)],
            "the kubelet has not renewed its Lease for 41 s, but the Lease lasts 40 s",
            id="lasts as long as usual",
        ),
        pytest.param([(lease(None), 0), (lease(None), 99)], "", id="never renewed"),
        pytest.param([({}, 0), ({}, 99)], "", id="empty"),
    ],
)
def test_silence(looks: list[tuple[dict[str, Any], float]], silence: str) -> None:
    heartbeats = smoke_causes.Heartbeats()
    for found, now_s in looks:
        said = heartbeats.read_silence("gpu-1", found, now_s, now_s)
    assert said == silence


def test_the_time_that_an_answer_takes_is_no_silence() -> None:
    """What was read at 30 may have been written at 30, and what was asked for at 60 at 60."""
    heartbeats = smoke_causes.Heartbeats()
    assert heartbeats.read_silence("gpu-1", OLD, asked_s=0, answered_s=30) == ""
    assert heartbeats.read_silence("gpu-1", OLD, asked_s=60, answered_s=90) == ""


def test_each_kubelet_has_a_silence_of_its_own() -> None:
    heartbeats = smoke_causes.Heartbeats()
    assert heartbeats.read_silence("gpu-1", OLD, 0, 0) == ""
    assert heartbeats.read_silence("gpu-2", OLD, 50, 50) == ""
