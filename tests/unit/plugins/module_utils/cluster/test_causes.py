# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.cluster import causes
from ansible_collections.metal.gpu.plugins.module_utils.cluster.scheduling import Taint
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding

SCENES = yaml.safe_load(
    (Path(__file__).parents[3] / "fixtures/kubernetes/refusals.yml").read_text(encoding="utf-8")
)
SUBJECT = causes.Subject(
    "the smoke pod",
    "gpu-1",
    "tests",
    "verify_smoke_tolerations",
    "verify_smoke_namespace",
    "set verify_smoke_resources",
)


def said(cause: causes.Cause) -> tuple[str, str]:
    """Return message and remedy of the finding, which a cause has to have the evidence for."""
    found = finding(cause.code, "gpu-1", **cause.evidence)
    return found["message"].removeprefix("gpu-1: "), found["remedy"]


@pytest.mark.parametrize(
    ("scene", "code", "words", "remedy"),
    [
        ("quota", "POD_OVER_QUOTA", "the ResourceQuota gpus in the namespace tests", "quota,limit"),
        (
            "quota_of_limits",
            "POD_OVER_QUOTA",
            "must specify limits.cpu",
            "set verify_smoke_resources",
        ),
        ("limit_range", "POD_OVER_QUOTA", "a LimitRange in the namespace tests", "describe"),
        ("runtime_class", "RUNTIME_CLASS_MISSING", "the RuntimeClass nvidia, which", "get runtime"),
        (
            "priority_class",
            "PRIORITY_CLASS_UNFIT",
            "could delete other pods",
            "create priorityclass",
        ),
        ("namespace", "NAMESPACE_MISSING", "the namespace none for", "create namespace none"),
        ("namespace_ends", "NAMESPACE_MISSING", "is being deleted", "another namespace"),
        ("pod_security", "POD_REJECTED", "Security Standard restricted:latest rejects", "exempt"),
        ("policy", "POD_REJECTED", "the ValidatingAdmissionPolicy images.example.com", "exempt"),
        ("webhook_denies", "POD_REJECTED", "webhook validate.kyverno.example rejects", "exempt"),
        ("webhook_down", "POD_REJECTED", "connect: connection refused", "verify_smoke_namespace"),
        ("daemonset_over_quota", "POD_OVER_QUOTA", "the ResourceQuota none", "namespace"),
    ],
)
def test_why_the_server_takes_no_pod(scene: str, code: str, words: str, remedy: str) -> None:
    cause = causes.of_refusal(SCENES[scene]["message"], SUBJECT)
    assert cause is not None
    assert cause.code == code
    message, advice = said(cause)
    assert words in message
    assert remedy in advice


def test_an_unknown_refusal_has_no_cause() -> None:
    assert causes.of_refusal('pods "rc" is forbidden: because', SUBJECT) is None


# Words: reference of failures, section A (handlers) and B (CDI) of the threads named there.
@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        pytest.param(
            "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox "
            'runtime: no runtime for "nvidia" is configured',
            "RUNTIME_HANDLER_MISSING", "the smoke pod needs the runtime nvidia, which",
            id="containerd 1",
        ),
        pytest.param(
            "Failed to create pod sandbox: rpc error: code = Unknown desc = unable to get OCI "
            'runtime for sandbox "a1": no runtime for "nvidia-cdi" is configured',
            "RUNTIME_HANDLER_MISSING", "needs the runtime nvidia-cdi, which", id="containerd 2",
        ),
        pytest.param(
            "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to find runtime "
            "handler nvidia from runtime list map[crun:0xc00047e300 runc:0xc00047ef00]",
            "RUNTIME_HANDLER_MISSING", "needs the runtime nvidia, which", id="CRI-O",
        ),
        pytest.param(
            'RuntimeHandler "nvidia" not supported',
            "RUNTIME_CLASS_UNSUPPORTED", "names the runtime nvidia by its RuntimeClass",
            id="cri-dockerd",
        ),
        pytest.param(
            "Error response from daemon: unknown or invalid runtime name: nvidia",
            "RUNTIME_HANDLER_MISSING", "needs the runtime nvidia, which", id="Docker",
        ),
        pytest.param(
            "docker: Error response from daemon: Unknown runtime specified nvidia.",
            "RUNTIME_HANDLER_MISSING", "needs the runtime nvidia, which", id="Docker before 23",
        ),
        pytest.param(
            "unknown or invalid runtime name: io.containerd.runc.v2. See 'docker run --help'.",
            "RUNTIME_HANDLER_MISSING", "needs the runtime io.containerd.runc.v2, which",
            id="a full stop",
        ),
        pytest.param(
            r'level=error msg="failed to get sandbox runtime: no runtime for \"nvidia\" is '
            'configured"',
            "RUNTIME_HANDLER_MISSING", "needs the runtime nvidia, which", id="a log of containerd",
        ),
        pytest.param(
            r'err="failed to \"CreatePodSandbox\" with CreatePodSandboxError: \"rpc error: no '
            r'runtime for \\\"nvidia\\\" is configured\""',
            "RUNTIME_HANDLER_MISSING", "needs the runtime nvidia, which", id="the kubelet's log",
        ),
        pytest.param(
            r'RuntimeHandler \"nvidia\" not supported',
            "RUNTIME_CLASS_UNSUPPORTED", "the runtime nvidia by", id="cri-dockerd, a log",
        ),
        pytest.param(
            "Error: failed to create containerd container: CDI device injection failed: "
            "unresolvable CDI devices k8s.gpu.nvidia.com/device=gpu-1",
            "CDI_UNRESOLVABLE", "unresolvable CDI devices k8s.gpu.nvidia.com", id="CDI, engine",
        ),
        pytest.param(
            "Error: failed to create containerd task: failed to create shim task: OCI runtime "
            "create failed: could not apply required modification to OCI specification: error "
            "modifying OCI spec: failed to inject CDI devices: unresolvable CDI devices "
            "management.nvidia.com/gpu=GPU-e78e68c0-4e6a-737e-f9cc-4223fe50aead",
            "CDI_UNRESOLVABLE", "the CDI devices of the smoke pod", id="CDI, runtime",
        ),
        pytest.param(
            'conflicting device "nvidia.com/gpu=0" (specs "/etc/cdi/nvidia.yaml", '
            '"/var/run/cdi/nvidia.yaml")',
            "CDI_UNRESOLVABLE", "conflicting device", id="CDI, twice",
        ),
        pytest.param(
            "failed to create the automatic CDI modifier: failed to get device: GPU is lost",
            "GPU_BLOCKS_CONTAINERS", "because a GPU of the node is lost", id="lost",
        ),
        pytest.param(
            "condition Ready is False: KubeletNotReady: container runtime is down",
            "ENGINE_SILENT", "container runtime is down", id="engine, condition",
        ),
        pytest.param(
            'rpc error: code = Unavailable desc = connection error: desc = "transport: Error while '
            'dialing: dial unix /run/containerd/containerd.sock: connect: connection refused"',
            "ENGINE_SILENT", "does not answer the kubelet", id="engine, event",
        ),
    ],
)  # fmt: skip
def test_what_engines_say(text: str, code: str, words: str) -> None:
    cause = causes.of_words(text, SUBJECT)
    assert cause is not None
    assert cause.code == code
    message, remedy = said(cause)
    assert words in message
    assert remedy


OF_DOCKER = [
    row
    for row in yaml.safe_load(
        (Path(__file__).parents[5] / "tests/recorded/engine_strategies.yml").read_text("utf-8")
    )["runtime"]
    if "words" in row
]


@pytest.mark.parametrize("row", OF_DOCKER, ids=[row["versions"][-1] for row in OF_DOCKER])
def test_who_can_register_a_runtime_is_told_to(row: dict[str, str]) -> None:
    """No configuration helps where cri-dockerd accepts no RuntimeClass at all."""
    cause = causes.of_words(row["words"], SUBJECT)
    assert cause is not None
    _message, remedy = said(cause)
    is_passed_on = "passes on" in row["value"]
    assert remedy.startswith("register it with") is is_passed_on
    assert ("leave verify_smoke_runtime_class empty" in remedy) is not is_passed_on


@pytest.mark.parametrize(
    "text",
    [
        "",
        'failed to setup network for sandbox "a": plugin type="bridge" failed (add)',
        "Pending: nvidia-smi: ContainerCreating",
        "dial tcp 10.0.0.2:5000: connect: connection refused",
    ],
)
def test_other_words_have_no_cause(text: str) -> None:
    assert causes.of_words(text, SUBJECT) is None


CUSTOM = Taint("dedicated", "ml", "NoSchedule")
CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
DISK = Taint("node.kubernetes.io/disk-pressure", "", "NoSchedule")
SILENT = Taint("node.kubernetes.io/unreachable", "", "NoSchedule")


@pytest.mark.parametrize(
    ("taints", "code", "words", "remedy"),
    [
        pytest.param(
            [CUSTOM], "NODE_TAINTED", "taint dedicated=ml:NoSchedule",
            "`kubectl taint node gpu-1 dedicated:NoSchedule-`, or add a toleration to "
            "verify_smoke_tolerations", id="custom",
        ),
        pytest.param(
            [CORDON], "NODE_TAINTED", "unschedulable", "kubectl uncordon gpu-1", id="cordon"
        ),
        pytest.param(
            [CUSTOM, DISK], "NODE_PRESSURE", "under disk pressure", "describe node gpu-1",
            id="pressure",
        ),
        pytest.param(
            [DISK, SILENT], "NODE_NOT_READY", "is not ready: no CNI", "kubelet", id="dead"
        ),
    ],
)  # fmt: skip
def test_which_taint_is_the_reason(taints: list[Taint], code: str, words: str, remedy: str) -> None:
    cause = causes.of_taints(taints, "no CNI", SUBJECT)
    assert cause is not None
    assert cause.code == code
    message, advice = said(cause)
    assert words in message
    assert remedy in advice


def test_no_taint_is_no_reason() -> None:
    assert causes.of_taints([], "", SUBJECT) is None


# Form: kubernetes v1.37.1, pkg/kubelet/eviction/helpers.go.
@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("The node was low on resource: ephemeral-storage. Threshold quantity: 50Gi", "disk"),
        ("The node was low on resource: inodes. ", "disk"),
        ("The node was low on resource: memory. ", "memory"),
        ("The node was low on resource: pids. ", "process"),
        ("The node had condition: [DiskPressure]. ", "disk"),
        (
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
            "resource",
        ),
    ],
)
def test_what_a_node_ran_out_of(message: str, kind: str) -> None:
    cause = causes.of_eviction(message, SUBJECT)
    assert said(cause)[0] == (
        f"the smoke pod does not run, because the node is under {kind} pressure: {message.strip()}"
    )


def test_quotes_are_short_and_keep_what_failed_and_why() -> None:
    text = f"Failed to pull image: {'rpc error: code = Unknown desc = x: ' * 200}no such host\n"
    words = causes.quote(text)
    assert len(words) == causes.QUOTE
    assert words.startswith("Failed to pull image: x: x:")
    assert words.endswith("x: no such host")
    assert "rpc error" not in words


def test_quotes_hide_credentials() -> None:
    assert "hunter2" not in causes.quote("Get https://admin:hunter2@registry.example/v2/: 401")


def event(kind: str, reason: str) -> dict[str, str]:
    return {"type": kind, "reason": reason}


@pytest.mark.parametrize(
    ("events", "told"),
    [
        pytest.param([], None, id="none"),
        pytest.param([event("Normal", "Pulling")], None, id="no warning"),
        pytest.param(
            [event("Warning", "FailedCreatePodSandBox"), event("Warning", "DNSConfigForming")],
            "FailedCreatePodSandBox", id="noise",
        ),
        pytest.param(
            [event("Warning", name) for name in ("FailedMount", "Failed", "BackOff")],
            "Failed", id="newest",
        ),
    ],
)  # fmt: skip
def test_the_event_that_tells_most(events: list[dict[str, str]], told: str | None) -> None:
    found = causes.telling_event(events)
    assert (found or {}).get("reason") == told
