# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks are full, and services do not come back: the message says why, and nothing is lost.

The tests depend on this order: each of them changes gpu-3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NODE = str(Path(__file__).parent.parent / "node.yml")
CONFIG = "/etc/containerd/config.toml"
HISTORY = "/var/lib/metal-gpu/config_document"
GATE_FILE = "/etc/systemd/system/kubelet.service.d/20-gpu.conf"


pytestmark = pytest.mark.usefixtures("cut_runs")  # they run in parallel to these tests


def bytes_of(laboratory: Any, *paths: str) -> str:
    return str(laboratory.host("gpu-3").check_output("sha256sum " + " ".join(paths)))


def started(laboratory: Any, unit: str) -> str:
    return str(
        laboratory.host("gpu-3").check_output(
            "systemctl show --value -p ActiveState,ActiveEnterTimestampMonotonic %s", unit
        )
    )


def admins_pod(laboratory: Any) -> tuple[int, str]:
    """Return the pod's restart count and start time: they prove that nothing touched it."""
    (work,) = laboratory.objects("pod", "admin")["status"]["containerStatuses"]
    return work["restartCount"], work["state"]["running"]["startedAt"]


def failure(laboratory: Any, *options: str) -> str:
    """Run the roles on gpu-3 and assert that they fail. Return the message on one line."""
    run = laboratory.playbook(NODE, "--limit=gpu-3", *options)
    assert run.returncode == 2
    return str(run.words)


@pytest.fixture
def full(laboratory: Any) -> Iterator[Any]:
    """Return a function that fills the disk of a folder."""
    folders = []

    def fill(folder: str) -> None:
        folders.append(folder)
        laboratory.lab("fault", "gpu-3", "disk-full", folder)

    yield fill
    for folder in folders:
        laboratory.lab("fault", "gpu-3", "disk-freed", folder)


@pytest.mark.parametrize(
    ("folder", "unwritten"),
    [(str(Path(CONFIG).parent), CONFIG), (HISTORY, f"{HISTORY}/%2Fetc%2Fcontainerd")],
)
def test_disk_full(laboratory, full, folder, unwritten):
    """Writing fails for the file itself, or for its backup. No partial file stays."""

    def state() -> tuple[str, str]:
        command = f"find {Path(CONFIG).parent} -type f -exec sha256sum {{}} + | sort"
        return laboratory.host("gpu-3").check_output(command), started(laboratory, "containerd")

    laboratory.host("gpu-3").check_output("mkdir --parents %s", folder)
    full(folder)
    before = state()
    words = failure(laboratory)
    assert f"cannot write {unwritten}" in words
    assert "No space left on device" in words
    assert state() == before


@pytest.fixture
def refused_start(laboratory: Any) -> Iterator[Any]:
    """Return a function that keeps a unit of gpu-3 from starting unless a test succeeds."""
    units = []

    def refuse(unit: str, test: str, words: str) -> None:
        units.append(unit)
        laboratory.lab("fault", "gpu-3", "refuse-start", unit, test, words)

    yield refuse
    for unit in units:
        laboratory.lab("fault", "gpu-3", "permit-start", unit)


def test_containerd_that_does_not_come_back(laboratory, refused_start):
    policy = "site policy: runc is the only runtime"
    refused_start("containerd", f"! grep -q nvidia {CONFIG}", policy)
    before = bytes_of(laboratory, CONFIG), admins_pod(laboratory)
    words = failure(laboratory, "--tags=runtime")
    assert "ENGINE_NOT_BACK" in words
    assert f"{CONFIG}, and runs with its former configuration: {policy}" in words
    assert (bytes_of(laboratory, CONFIG), admins_pod(laboratory)) == before
    assert started(laboratory, "containerd").startswith("active")
    laboratory.kubectl("wait", "--for=condition=Ready", "node/gpu-3", "--timeout=60s")


def test_run_again_once_the_cause_is_gone(laboratory):
    before = admins_pod(laboratory)
    run = laboratory.playbook("metal.gpu.site", "--limit=gpu-3")
    assert run.returncode == 0
    assert re.search(r"gpu-3 .*?(\s+1){5}\s+1/1\s+ok\b", run.output)
    assert admins_pod(laboratory) == before


def test_kubelet_that_does_not_come_back(laboratory, refused_start):
    laboratory.lab("scene", "gpu-3", "idle-gate")
    policy = "site policy: the gate DevicePlugins has to be set"
    refused_start("kubelet", f"grep -q DevicePlugins {GATE_FILE}", policy)
    files = (GATE_FILE, "/etc/default/kubelet", "/var/lib/kubelet/config.yaml")
    before = bytes_of(laboratory, *files), admins_pod(laboratory)
    words = failure(laboratory, "--tags=kubelet")
    assert "KUBELET_NOT_BACK" in words
    assert f"runs with its former ones: {policy}" in words
    assert (bytes_of(laboratory, *files), admins_pod(laboratory)) == before
    assert started(laboratory, "kubelet").startswith("active")
    laboratory.kubectl("wait", "--for=condition=Ready", "node/gpu-3", "--timeout=60s")


def verdict(laboratory: Any, *options: str) -> tuple[int, str]:
    run = laboratory.playbook("metal.gpu.verify", "--limit=gpu-3", *options)
    pods = laboratory.objects("pods", "-A", "-l", "app.kubernetes.io/managed-by=metal.gpu")
    assert [pod for pod in pods["items"] if "smoke" in pod["metadata"]["name"]] == []
    return run.returncode, str(run.words)


def test_smoke_image_that_cannot_be_pulled(laboratory):
    """The table still shows the counts of all layers, and the remaining gate is reported."""
    image = "registry.invalid/cuda:1"
    # It has no address, which may be so for a moment only: the pod is waited for.
    options = ("-e", f"verify_compute_image={image}", "-e", "verify_smoke_timeout=60")
    code, words = verdict(laboratory, *options)
    assert code != 0
    assert "SMOKE_IMAGE_UNAVAILABLE" in words
    assert "DRIFTED gpu-3: kubelet has drifted; steps to correct it: " in words
    assert image in words
    assert re.search(r"gpu-3 .*?( 1){5} ", words)


TAKER = """
apiVersion: v1
kind: Pod
metadata: {name: taker, namespace: default}
spec:
  nodeSelector: {kubernetes.io/hostname: gpu-3}
  terminationGracePeriodSeconds: 0
  containers:
    - name: work
      image: docker.io/library/busybox:1.35
      command: [sleep, "3600"]
      resources: {limits: {nvidia.com/gpu: 1}}
"""


@pytest.fixture
def taken(laboratory: Any) -> Iterator[None]:
    laboratory.kubectl("apply", "-f", "-", stdin=TAKER)
    laboratory.kubectl("wait", "--for=condition=Ready", "pod/taker", "--timeout=60s")
    yield
    laboratory.kubectl("delete", "pod", "taker")


def test_gpus_that_are_all_taken(laboratory, taken):
    """A busy node is not a failure, and not ok."""
    code, words = verdict(laboratory, "-e", "verify_drift=false")
    assert code == 0
    assert "0 of 1 nodes ok, 1 busy, " in words
    assert "SMOKE_NOT_RUN" in words
    assert "default/taker" in words


def test_kubelet_that_has_died(laboratory, taken):
    """Every count stays right, and no pod can run to show the problem."""
    host = laboratory.host("gpu-3")
    host.check_output("systemctl stop kubelet")
    try:
        laboratory.kubectl("wait", "--for=condition=Ready=Unknown", "node/gpu-3", "--timeout=120s")
        code, words = verdict(laboratory, "-e", "verify_capacity_timeout=1")
    finally:
        host.check_output("systemctl start kubelet")
        laboratory.kubectl("wait", "--for=condition=Ready", "node/gpu-3", "--timeout=60s")
    assert code != 0
    assert re.search(r"gpu-3 .*?( 1){5} \S+ KUBELET_STOPPED\b", words)
    assert "KUBELET_STOPPED gpu-3: the kubelet is not running" in words
