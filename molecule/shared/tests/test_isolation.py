# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who gets a GPU without a request, with any engine: with the guard and without.

The guard is a pair of admission policies, so it has an effect only in a real API server. It warns
where `nvidia` is the default runtime: under Docker always, elsewhere if an admin wants that. It
rejects pods if an admin asks for it, as the inventory of the scenario with Docker does.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import leaks
import pytest
import yaml

RECORDED = yaml.safe_load((leaks.RECORD.parent / "isolation.yml").read_text())
WORDS = {row["what"]: row["value"] for row in RECORDED["extended_resources"]["rows"]}

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: unequal, namespace: default}}
spec:
  containers:
    - name: cuda
      image: nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04
      resources: {resources}
"""


LIMIT = {"limits": {"nvidia.com/gpu": 1}}
NOTHING = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}
FOREIGN = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "GPU-x"}]}
OF_FIELD = {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
BY_KIND = "an annotation cdi.k8s.io/ of the pod names GPUs, or devices of their driver"
BY_NAME, BY_PATH, BY_CLASS, BY_NODE = (
    "only the device plugin names GPUs in NVIDIA_VISIBLE_DEVICES",
    "a hostPath volume has a device file of a GPU",
    "the pod has the RuntimeClass nvidia, and requests no GPU",
    "the pod has a nodeName, and requests GPUs",
)


@dataclass(frozen=True)
class Try:
    """A pod, and what the guard says of it."""

    what: str
    container: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    said: str = ""

    def create(self, laboratory: Any, namespace: str = "default") -> Any:
        """Have the API server admit the pod, which it then does not create; return the result."""
        image = "nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04"
        metadata = {"name": "guarded", "namespace": namespace, "annotations": self.annotations}
        containers = [{"name": "cuda", "image": image, **self.container}]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        pod |= {"spec": {"containers": containers, **self.spec}}
        words = ("apply", "--dry-run=server", "-f", "-")
        return laboratory.try_kubectl(*words, stdin=json.dumps(pod))


def mounting(path: str) -> dict[str, Any]:
    return {"volumes": [{"name": "host", "hostPath": {"path": path}}]}


CLASS = {"runtimeClassName": "nvidia"}
BOUND, UNKNOWN = {"nodeName": "gpu-1"}, {"limits": {"nvidia.com/gpu-none": 1}}
CLAIM = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}
REJECTED = [
    Try("device file", spec=mounting("/dev/nvidia0"), said=BY_PATH),
    Try("device file, two slashes", spec=mounting("/dev//nvidia0"), said=BY_PATH),
    Try("foreign value", FOREIGN, said=BY_NAME),
    Try("foreign value, with a limit", {**FOREIGN, "resources": LIMIT}, said=BY_NAME),
    Try("valueFrom", {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", **OF_FIELD}]}, said=BY_NAME),
    Try("class without a request", spec=CLASS, said=BY_CLASS),
    Try("node name with a limit", {"resources": LIMIT}, BOUND, said=BY_NODE),
    Try("node name, unknown resource", {"resources": UNKNOWN}, BOUND, said=BY_NODE),
    Try(
        "memory of other nodes",
        annotations={"cdi.k8s.io/x": "nvidia.com/imex-channel=0"},
        said=BY_KIND,
    ),
]
ACCEPTED = [
    Try("void", NOTHING),
    Try("shared memory", spec=mounting("/dev/shm")),
    Try("GPU of a virtual machine", annotations={"cdi.k8s.io/gpu": "nvidia.com/pgpu=0"}),
    Try("class with a claim", spec={**CLASS, **CLAIM}),
    Try("class with a limit", {"resources": LIMIT}, CLASS),
    Try("node name without a request", NOTHING, BOUND),
]
RUNTIME_CLASS = """
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: nvidia}
handler: nvidia
"""


def named(tries: list[Try]) -> list[Any]:
    return [pytest.param(one, id=one.what) for one in tries]


def policies(laboratory: Any) -> list[str]:
    kinds = "mutatingadmissionpolicies,validatingadmissionpolicies"
    names = laboratory.kubectl("get", kinds, "-o", "name").split()
    return [name for name in names if "metal-gpu-guard" in name]


def test_no_container_gets_a_gpu_that_it_did_not_request(laboratory):
    leaks.nothing_leaks(laboratory, leaks.engine(laboratory).case)


DEFAULT = {"nvidia_container_runtime_default": True}
ENFORCED = {**DEFAULT, "device_plugin_guard": "enforce"}


@pytest.fixture(scope="module")
def default_runtime(laboratory: Any) -> Iterator[Any]:
    """`nvidia` is the default runtime, and the guard rejects pods. Docker has that already.

    Return the run before the admin asked for the guard, and the policies that it left.
    """
    engine = leaks.engine(laboratory)
    before = policies(laboratory)
    run = leaks.site(laboratory, **DEFAULT)
    left = policies(laboratory)
    leaks.site(laboratory, **ENFORCED)
    yield run, left
    # Policies that are there stay, until an admin takes them away.
    former = {} if before else {"device_plugin_guard": "none"}
    leaks.site(laboratory, nvidia_container_runtime_default=engine.has_default, **former)
    assert policies(laboratory) == before


def test_pods_are_rejected_only_if_an_admin_asks_for_it(laboratory, default_runtime):
    run, left = default_runtime
    is_asked = leaks.engine(laboratory).has_default
    assert len(left) == (2 if is_asked else 1)
    assert ("GUARD_WARNS" in run.words) is not is_asked
    assert len(policies(laboratory)) == 2
    found = leaks.nothing_leaks(laboratory, f"{leaks.engine(laboratory).by_default}, guard")
    for attempts in found.values():
        assert all(attempts[name] == "nothing" for name in leaks.BY_IMAGE)
        assert attempts["pod_variable"] == "refused"


@pytest.fixture
def no_guard(laboratory: Any, default_runtime: Any) -> Iterator[None]:
    leaks.site(laboratory, **DEFAULT, device_plugin_guard="none")
    yield
    leaks.site(laboratory, **ENFORCED)


def test_without_the_guard_they_do_and_the_finding_says_how(laboratory, no_guard):
    run, found = leaks.run(laboratory)
    assert run.returncode != 0
    leaks.check(laboratory, f"{leaks.engine(laboratory).by_default}, no guard", found)
    for attempts in found.values():
        assert leaks.BY_IMAGE | {"pod_variable"} <= leaks.leaked(attempts)
        assert attempts["plain"] == "nothing"
    assert "GPU_LEAKED gpu-1: containers that request no GPU see GPUs" in run.words
    assert "an image with NVIDIA_VISIBLE_DEVICES=all (/dev/nvidia" in run.words
    assert "device_plugin_guard: enforce" in run.words


@pytest.fixture
def by_mounts(laboratory: Any, default_runtime: Any) -> Iterator[dict[str, Any]]:
    """What docs/isolation.md has for clusters without admission policies; yield the variables."""
    variables = {
        **DEFAULT,
        "device_plugin_device_list_strategy": "volume-mounts",
        "nvidia_container_runtime_envvar": "ignore",
        "device_plugin_guard": "none",
    }
    leaks.site(laboratory, **variables)
    yield variables
    leaks.site(laboratory, **ENFORCED)
    # The guard counts on CDI alone once the plugin's pods have no other strategy.
    leaks.site(laboratory, **ENFORCED)


def test_with_requests_by_mounts_only_a_mount_is_a_way_around(laboratory, by_mounts):
    """And the pods that request GPUs get them."""
    proof = laboratory.playbook("metal.gpu.verify", "--extra-vars", json.dumps(by_mounts))
    assert proof.returncode == 0
    run, found = leaks.run(laboratory)
    assert run.returncode != 0
    leaks.check(
        laboratory, f"{leaks.engine(laboratory).by_default}, volume-mounts, no guard", found
    )
    for attempts in found.values():
        assert leaks.leaked(attempts) == {"volume_mount"}


def test_guard_is_back_and_a_second_run_changes_nothing(laboratory, default_runtime):
    assert len(policies(laboratory)) == 2
    run = leaks.site(laboratory, **DEFAULT)  # keeps what is there
    assert not re.search(r"changed=[1-9]", run.output)


@pytest.fixture(scope="module")
def guarded(laboratory: Any, default_runtime: Any) -> Iterator[Any]:
    """The guard judges pods. Docker's nodes have no RuntimeClass, and a pod with none is no pod."""
    name = "runtimeclass/nvidia"
    has_class = laboratory.try_kubectl("get", name).returncode == 0
    if not has_class:
        laboratory.kubectl("apply", "-f", "-", stdin=RUNTIME_CLASS)
    yield laboratory
    if not has_class:
        laboratory.kubectl("delete", name)


@pytest.mark.parametrize("one", named(REJECTED))
def test_guard_rejects(guarded, one):
    result = one.create(guarded)
    assert result.returncode != 0
    assert one.said in result.stderr


@pytest.mark.parametrize("one", named(ACCEPTED))
def test_guard_accepts(guarded, one):
    result = one.create(guarded)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("one", named([*REJECTED, *ACCEPTED]))
def test_guard_leaves_exempt_namespaces_alone(guarded, one):
    result = one.create(guarded, "kube-system")
    assert (result.returncode, result.stderr) == (0, "")


def await_guard(laboratory: Any, *, rejects: bool) -> None:
    """Nothing tells when the API server heeds a policy, but that it does."""
    deadline = time.monotonic() + 30
    while (REJECTED[0].create(laboratory).returncode != 0) is not rejects:
        assert time.monotonic() < deadline


@pytest.fixture
def only_warns(guarded: Any) -> Iterator[None]:
    leaks.site(guarded, **DEFAULT, device_plugin_guard="warn")
    await_guard(guarded, rejects=False)
    yield
    leaks.site(guarded, **ENFORCED)
    await_guard(guarded, rejects=True)


def test_guard_that_only_warns(guarded, only_warns):
    for one in REJECTED:
        result = one.create(guarded)
        assert result.returncode == 0
        assert "Warning: " in result.stderr
        assert one.said in result.stderr
    for one in ACCEPTED:
        assert one.create(guarded).stderr == ""


def test_guard_that_only_warns_closes_nothing(laboratory, only_warns):
    _run, found = leaks.run(laboratory)
    for attempts in found.values():
        assert leaks.BY_IMAGE | {"pod_variable"} <= leaks.leaked(attempts)


def test_pods_that_request_gpus_still_get_them(laboratory, default_runtime):
    """The plugin is in an exempt namespace; the pods of the proof request their GPUs."""
    variable = '{"nvidia_container_runtime_default": true}'
    run = laboratory.playbook("metal.gpu.verify", "--extra-vars", variable)
    assert run.returncode == 0


@pytest.mark.parametrize(
    ("resources", "what"),
    [
        ("{requests: {nvidia.com/gpu: 1}}", "a request without a limit"),
        (
            "{requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 2}}",
            "a request of 1 with a limit of 2",
        ),
    ],
)
def test_the_api_server_refuses_what_could_be_shared(laboratory, resources, what):
    with pytest.raises(AssertionError, match=WORDS[what]):
        laboratory.kubectl("apply", "-f", "-", stdin=POD.format(resources=resources))
