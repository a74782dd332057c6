# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input: the message says what is wrong, and nothing changes on any node."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from metal_lab.pki import Authority

NODES = ("gpu-1", "gpu-2")


# Files of /etc and /usr, packages, and the start time of the engine.
FINGERPRINT = """
find /etc /usr /lib/modules /var/lib/metal-gpu -xdev -type f -printf '%p %s %T@\\n' 2> /dev/null |
    sort | sha256sum
dpkg-query -W | sha256sum
systemctl show --value -p ActiveEnterTimestampMonotonic containerd
"""


def fingerprint_of(laboratory: Any, node: str) -> str:
    """Return a digest that differs after any change on a node."""
    return str(laboratory.host(node).run(FINGERPRINT).stdout)


def fingerprint(laboratory: Any) -> list[str]:
    """Return the digests of all nodes, and the objects of the API server."""
    return [fingerprint_of(laboratory, node) for node in NODES] + [
        laboratory.kubectl("get", "daemonsets,runtimeclasses,pods", "-A", "-o", "name")
    ]


@pytest.fixture
def refused(laboratory: Any) -> Any:
    """Return a function that runs site.yml and returns its refusals on one line."""

    def run(*options: str, inventory: Path | None = None) -> str:
        before = fingerprint(laboratory)
        result = laboratory.playbook("metal.gpu.site", *options, inventory=inventory)
        assert result.returncode != 0
        assert fingerprint(laboratory) == before
        return str(result.words.partition("PLAY RECAP")[0])

    return run


@pytest.fixture
def fault(laboratory: Any) -> Iterator[Any]:
    """Return a function that breaks a node's hardware until the test ends."""
    broken: set[str] = set()

    def inject(node: str, *words: str) -> None:
        broken.add(node)
        laboratory.lab("fault", node, *words)

    yield inject
    for node in broken:
        laboratory.lab("fault", node, "restore")


def test_no_host_in_the_group(laboratory, refused, tmp_path):
    empty = laboratory.inventory_with(tmp_path / "empty.yml", lambda group: group.clear())
    assert "gpu_nodes" in refused(inventory=empty)


def test_every_reason_of_every_host_is_in_one_list(laboratory, refused, fault, tmp_path):
    """A user who fixes one problem must not meet the next one only afterwards."""
    fault("gpu-2", "os-unknown")
    fault("gpu-2", "remove-all-gpus")

    def mistakes(group: Any) -> None:
        hosts = group["hosts"]
        hosts["gpu-1"]["gpu_count"] = 5
        hosts["gpu-1-again"] = hosts["gpu-1"]
        # A node without a plan must not drop out of the run unnoticed.
        mistake = {"nvidia_driver_version": "{{ undefined_variable }}"}
        hosts["gpu-1-unplanned"] = hosts["gpu-1"] | mistake
        hosts["gpu-9"] = {"ansible_host": "127.0.0.254", "ansible_port": 9}

    text = refused(inventory=laboratory.inventory_with(tmp_path / "mistakes.yml", mistakes))
    for reason in (
        r"OS_UNSUPPORTED gpu-2: ",
        r"NO_GPU gpu-2: ",
        r"GPU_COUNT_DIFFERS gpu-1: ",
        r"NODE_NAME_TWICE gpu-1: this host, gpu-1-again and gpu-1-unplanned are .* node, gpu-1\b",
        r"NODE_NAME_TWICE gpu-1-again: this host, gpu-1 and gpu-1-unplanned are .* node, gpu-1\b",
        r"RUN_STOPPED gpu-1-unplanned: .*'the plan of nvidia_driver'.*undefined_variable",
        r"NODE_UNREACHABLE gpu-9: ",
    ):
        assert re.search(reason, text)
    addresses = set(re.findall(r"0000:[0-9a-f]{2}:00\.0", text))
    assert len(addresses) == 4  # of gpu-1: what the declared 5 is compared with


def test_api_server_unreachable(laboratory, refused, tmp_path):
    def elsewhere(cluster: Any, user: Any) -> None:
        cluster["server"] = cluster["server"].replace(":6443", ":1")

    text = refused("-e", laboratory.kubeconfig_with(tmp_path / "kubeconfig", elsewhere))
    assert "unreachable" in text
    assert ":1" in text


def test_api_server_does_not_know_us(laboratory, refused, tmp_path):
    def unknown_user(cluster: Any, user: Any) -> None:
        user.clear()
        user["token"] = "of-another-cluster"

    text = refused("-e", laboratory.kubeconfig_with(tmp_path / "kubeconfig", unknown_user))
    assert "401" in text


def test_api_server_of_another_authority(laboratory, refused, tmp_path):
    other = Authority().certificate

    def distrust(cluster: Any, user: Any) -> None:
        cluster["certificate-authority-data"] = base64.b64encode(other).decode()

    text = refused("-e", laboratory.kubeconfig_with(tmp_path / "kubeconfig", distrust))
    assert "certificate" in text
    assert "unreachable" not in text


class Invalid(NamedTuple):
    """An admin's file that a fault makes invalid in one of its last lines. 0 is the last line."""

    fault: str
    path: str
    last: int
    code: str


INVALID = {
    "gpu-1": Invalid(
        "invalid-containerd-config", "/etc/containerd/config.toml", 1, "CONTAINERD_CONFIG_INVALID"
    ),
    "gpu-2": Invalid(
        "invalid-kubelet-config", "/var/lib/kubelet/config.yaml", 0, "KUBELET_CONFIG_INVALID"
    ),
}


@pytest.fixture
def invalid_files(laboratory: Any) -> Iterator[dict[str, str]]:
    """Yield the contents of the files, by node."""
    for node, invalid in INVALID.items():
        laboratory.host(node).check_output("cp --preserve %s /root/good", invalid.path)
        laboratory.lab("fault", node, invalid.fault)
    yield {
        node: laboratory.host(node).file(invalid.path).content_string
        for node, invalid in INVALID.items()
    }
    for node, invalid in INVALID.items():
        laboratory.host(node).check_output("mv /root/good %s", invalid.path)


def test_invalid_toml_and_yaml_are_named_and_left_alone(laboratory, refused, invalid_files):
    text = refused()
    for node, invalid in INVALID.items():
        content = invalid_files[node]
        line = content.count("\n") - invalid.last
        place = rf"{invalid.code} {node}: .*{invalid.path}, line {line}, column \d+: "
        assert re.search(place, text)
        assert laboratory.host(node).file(invalid.path).content_string == content


def rehearse(laboratory: Any, *options: str) -> str:
    """Check site.yml while gpu-2 has to stop. gpu-1 continues, and the run fails at the end."""
    run = laboratory.playbook("metal.gpu.site", "--check", *options)
    assert run.returncode != 0
    words, recap = run.output.split("PLAY RECAP")
    assert re.search(r"gpu-1\s+: ok=\d+\s+changed=[1-9]\d*\s+unreachable=0\s+failed=0", recap)
    assert re.search(r"gpu-2\s+: ok=\d+\s+changed=0\s+unreachable=0\s+failed=1", recap)
    return str(words)


def test_skip_refused_continues_with_the_others(laboratory, fault):
    fault("gpu-2", "remove-all-gpus")
    words = rehearse(laboratory, "-e", "metal_gpu_skip_refused=true")
    assert "NO_GPU gpu-2: the PCI bus has no NVIDIA GPU" in words
    assert re.search(r"gpu-2 .* NO_GPU\b", words)  # in the table


def test_reboot_without_permission_stops_only_that_node(laboratory, fault):
    """In check mode, so that this test changes nothing."""
    fault("gpu-2", "nouveau")
    words = rehearse(laboratory)
    assert re.search(r"NOUVEAU_LOADED gpu-2: .* nvidia_driver_reboot_ok is not set", words)
    assert re.search(r"gpu-2 .* NOUVEAU_LOADED\b", words)


def test_sudo_refused(laboratory):
    """sudo asks the user of the inventory for a password. That user has none."""
    before = fingerprint(laboratory)
    laboratory.lab("fault", "gpu-1", "no-sudo")
    try:
        run = laboratory.playbook("metal.gpu.site")
    finally:
        laboratory.lab("fault", "gpu-1", "sudo")
    assert run.returncode != 0
    assert re.search(r"SUDO_REFUSED gpu-1: .*sudo", run.output)
    assert fingerprint(laboratory) == before


RIGHTS = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: viewer, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: viewer}
rules:
  - {apiGroups: [""], resources: RESOURCES, verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: viewer}
subjects:
  - {kind: ServiceAccount, name: viewer, namespace: default}
"""


@pytest.fixture
def viewer(laboratory: Any, tmp_path: Path) -> Iterator[Any]:
    """Return a function that makes the option for a user who may only read some resources."""

    def kubeconfig(resources: str) -> str:
        laboratory.kubectl("apply", "-f", "-", stdin=RIGHTS.replace("RESOURCES", resources))
        return str(laboratory.kubeconfig_of("viewer", tmp_path / "kubeconfig"))

    yield kubeconfig
    laboratory.kubectl("delete", "-f", "-", stdin=RIGHTS.replace("RESOURCES", "[]"))


@pytest.mark.parametrize(
    ("allowed", "missing"),
    [
        (
            "[pods]",
            [
                "list, watch, get, patch nodes in the whole cluster",
                "list daemonsets.apps in the whole cluster",
                "get, patch, list, create runtimeclasses.node.k8s.io in the whole cluster",
                "create, deletecollection or delete pods in the namespace default",
            ],
        ),
        ("[nodes, pods]", ["patch nodes in the whole cluster"]),
    ],
)
def test_forbidden_by_rbac(laboratory, refused, viewer, allowed, missing):
    """All missing permissions are listed before anything changes."""
    text = refused("-e", viewer(allowed))
    assert "CLUSTER_FORBIDDEN" in text
    for permission in missing:
        assert f"does not let system:serviceaccount:default:viewer {permission}" in text


OTHERS_PLUGIN = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nvdp, namespace: kube-system}
spec:
  selector: {matchLabels: {app: nvdp}}
  template:
    metadata: {labels: {app: nvdp}}
    spec:
      nodeSelector: {nvidia.com/gpu.present: "true"}  # as soon as the role adds it
      containers:
        - {name: ctr, image: "nvcr.io/nvidia/k8s-device-plugin:v0.17.0"}
      volumes:
        - {name: device-plugin, hostPath: {path: /var/lib/kubelet/device-plugins}}
"""


def test_foreign_device_plugin_is_refused(laboratory, refused):
    laboratory.kubectl("apply", "-f", "-", stdin=OTHERS_PLUGIN)
    try:
        assert re.search(r"DEVICE_PLUGIN_FOREIGN cluster: .* kube-system/nvdp", refused())
    finally:
        laboratory.kubectl("delete", "-f", "-", stdin=OTHERS_PLUGIN)


@pytest.fixture
def run_that_fails(laboratory: Any, tmp_path: Path) -> Any:
    """Return a function that runs site.yml until gpu-1 asks for a version that does not exist.

    The tests that use it come last: changes before the failure stay.
    """

    def request(group: Any) -> None:
        group["hosts"]["gpu-1"]["nvidia_container_runtime_version"] = "1.20.99"

    inventory = laboratory.inventory_with(tmp_path / "version.yml", request)

    def run(*options: str, **watched: Any) -> str:
        command = ("metal.gpu.site", "--tags=runtime,verify", *options)
        result = laboratory.playbook(*command, inventory=inventory, **watched)
        assert result.returncode != 0
        words, _recap = result.output.split("PLAY RECAP")
        assert re.search(r"gpu-1 .* PACKAGE_VERSION_MISSING\b", words)  # in the table
        return str(words)

    return run


def test_no_node_starts_after_a_failed_one(laboratory, run_that_fails):
    before = fingerprint_of(laboratory, "gpu-2")
    words = run_that_fails("-e", "metal_gpu_serial=1")
    assert re.search(r"gpu-2 .* ROLLOUT_HALTED\b", words)
    assert re.search(r"ROLLOUT_HALTED gpu-2: not started, .* gpu-1\b", words)
    assert fingerprint_of(laboratory, "gpu-2") == before


def test_node_that_becomes_unreachable_is_in_the_table(laboratory, run_that_fails):
    """Also with a limit, which removes localhost from the plays."""

    def cut(line: str) -> None:
        if "Announce the plan of nvidia_container_runtime" in line:
            laboratory.lab("fault", "gpu-2", "cut-ssh")

    try:
        words = run_that_fails("--limit=gpu-1,gpu-2", watch=cut)
    finally:
        laboratory.lab("fault", "gpu-2", "restore-ssh")
    assert re.search(r"gpu-2 .* NODE_UNREACHABLE\b", words)
