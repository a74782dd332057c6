# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input: the message says what is wrong, and nothing was changed on any node."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metal_lab.pki import Authority

NODES = ("gpu-1", "gpu-2")


# Files of /etc and /usr, packages, and since when the engine runs.
FINGERPRINT = """
find /etc /usr /lib/modules /var/lib/metal-gpu -xdev -type f -printf '%p %s %T@\\n' 2> /dev/null |
    sort | sha256sum
dpkg-query -W | sha256sum
systemctl show --value -p ActiveEnterTimestampMonotonic containerd
"""


def fingerprint_of(laboratory: Any, node: str) -> str:
    """Return what tells whether anything changed on a node."""
    return str(laboratory.host(node).run(FINGERPRINT).stdout)


def fingerprint(laboratory: Any) -> list[str]:
    """Return the same of all nodes, and the objects of the API server."""
    return [fingerprint_of(laboratory, node) for node in NODES] + [
        laboratory.kubectl("get", "daemonsets,runtimeclasses,pods", "-A", "-o", "name")
    ]


@pytest.fixture
def refused(laboratory: Any) -> Any:
    """Return a function that runs site.yml and returns its words of refusal on one line."""

    def run(*options: str, inventory: Path | None = None) -> str:
        before = fingerprint(laboratory)
        result = laboratory.playbook("metal.gpu.site", *options, inventory=inventory)
        assert result.returncode != 0, result.output[-4000:]
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


def test_node_without_gpu_and_wrong_count_are_one_list(laboratory, refused, fault):
    """Two nodes, two reasons, one list."""
    fault("gpu-2", "remove-all-gpus")
    text = refused("-e", "gpu_count=5")
    assert "NO_GPU gpu-2: " in text
    assert "GPU_COUNT_DIFFERS gpu-1: " in text
    addresses = set(re.findall(r"0000:[0-9a-f]{2}:00\.0", text))
    assert len(addresses) == 4  # of gpu-1: what the declared 5 is compared with


def test_unreachable_node_is_in_the_list(laboratory, refused, tmp_path):
    def add(group: Any) -> None:
        group["hosts"]["gpu-9"] = {"ansible_host": "127.0.0.254", "ansible_port": 9}

    text = refused(inventory=laboratory.inventory_with(tmp_path / "nine.yml", add))
    assert "gpu-9" in text
    assert "UNREACHABLE" in text


def test_node_without_a_plan_is_in_the_list(laboratory, refused, tmp_path):
    """A mistake in its variables must not take it out of the run unnoticed."""

    def mistake(group: Any) -> None:
        group["hosts"]["gpu-2"]["nvidia_driver_version"] = "{{ nobody_has_set_this }}"

    text = refused(inventory=laboratory.inventory_with(tmp_path / "mistake.yml", mistake))
    assert re.search(r"RUN_STOPPED gpu-2: .*'Plan the driver'.*nobody_has_set_this", text)


def test_unknown_operating_system(laboratory, refused, fault):
    fault("gpu-1", "os-unknown")
    assert "OS_UNSUPPORTED" in refused()


def test_api_server_unreachable(laboratory, refused, tmp_path):
    def elsewhere(cluster: Any, user: Any) -> None:
        cluster["server"] = cluster["server"].replace(":6443", ":1")

    text = refused("-e", laboratory.kubeconfig_with(tmp_path / "kubeconfig", elsewhere))
    assert "unreachable" in text
    assert ":1" in text


def test_api_server_does_not_know_us(laboratory, refused, tmp_path):
    def nobody(cluster: Any, user: Any) -> None:
        user.clear()
        user["token"] = "of-another-cluster"

    text = refused("-e", laboratory.kubeconfig_with(tmp_path / "kubeconfig", nobody))
    assert "401" in text


def test_api_server_of_another_authority(laboratory, refused, tmp_path):
    other = Authority().certificate

    def distrust(cluster: Any, user: Any) -> None:
        cluster["certificate-authority-data"] = base64.b64encode(other).decode()

    text = refused("-e", laboratory.kubeconfig_with(tmp_path / "kubeconfig", distrust))
    assert "certificate" in text
    assert "unreachable" not in text


def test_invalid_toml_is_named_and_left_alone(laboratory, tmp_path):
    host = laboratory.host("gpu-1")
    path = "/etc/containerd/config.toml"
    host.check_output("cp --preserve %s /root/good.toml", path)
    laboratory.lab("fault", "gpu-1", "invalid-containerd-config")
    try:
        broken = host.file(path).content_string
        line = broken.count("\n") - 1
        before = fingerprint(laboratory)
        run = laboratory.playbook("metal.gpu.site")
        assert run.returncode != 0
        assert path in run.output
        assert f"line {line}" in run.output
        assert "column" in run.output
        assert host.file(path).content_string == broken
        assert fingerprint(laboratory) == before
    finally:
        host.check_output("mv /root/good.toml %s", path)


def rehearse(laboratory: Any, *options: str) -> str:
    """Rehearse site.yml while gpu-2 may not go on: gpu-1 does, and the run fails in the end."""
    run = laboratory.playbook("metal.gpu.site", "--check", *options)
    assert run.returncode != 0, run.output[-4000:]
    words, recap = run.output.split("PLAY RECAP")
    assert re.search(r"gpu-1\s+: ok=\d+\s+changed=[1-9]\d*\s+unreachable=0\s+failed=0", recap)
    assert re.search(r"gpu-2\s+: ok=\d+\s+changed=0\s+unreachable=0\s+failed=1", recap)
    return str(words)


def test_skip_refused_goes_on_with_the_others(laboratory, fault):
    fault("gpu-2", "remove-all-gpus")
    words = rehearse(laboratory, "-e", "metal_gpu_skip_refused=true")
    assert re.search(r"gpu-2 .* NO_GPU\b", words)  # in the table


def test_reboot_that_nobody_permitted_stops_that_node_alone(laboratory, fault):
    """In check mode, so that nothing changes here either."""
    fault("gpu-2", "nouveau")
    words = rehearse(laboratory)
    assert re.search(r"NOUVEAU_LOADED gpu-2: .* nvidia_driver_reboot_ok is not set", words)
    assert re.search(r"gpu-2 .* NOUVEAU_LOADED\b", words)


def test_invalid_yaml_is_named_and_left_alone(laboratory, refused):
    host, path = laboratory.host("gpu-2"), "/var/lib/kubelet/config.yaml"
    host.check_output("cp --preserve %s /root/good.yaml", path)
    laboratory.lab("fault", "gpu-2", "invalid-kubelet-config")
    broken = host.file(path).content_string
    try:
        text = refused()
        assert "KUBELET_CONFIG_INVALID" in text
        assert re.search(rf"{path}, line {broken.count(chr(10))}, column \d+: ", text)
        assert host.file(path).content_string == broken
    finally:
        host.check_output("mv /root/good.yaml %s", path)


def test_sudo_refused(laboratory):
    """The user of the inventory is asked for a password, which there is none of."""
    before = fingerprint(laboratory)
    laboratory.lab("fault", "gpu-1", "no-sudo")
    try:
        run = laboratory.playbook("metal.gpu.site")
    finally:
        laboratory.lab("fault", "gpu-1", "sudo")
    assert run.returncode != 0
    assert re.search(r"SUDO_REFUSED gpu-1: .*sudo", run.output), run.output[-4000:]
    assert fingerprint(laboratory) == before


def test_two_nodes_with_the_same_name(laboratory, refused, tmp_path):
    def add(group: Any) -> None:
        group["hosts"]["gpu-1-again"] = group["hosts"]["gpu-1"]

    text = refused(inventory=laboratory.inventory_with(tmp_path / "twice.yml", add))
    assert re.search(r"NODE_NAME_TWICE gpu-1(-again)?: .* gpu-1, and so is gpu-1(-again)?", text)


RIGHTS = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: somebody, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: somebody}
rules:
  - {apiGroups: [""], resources: RESOURCES, verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: somebody}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: somebody}
subjects:
  - {kind: ServiceAccount, name: somebody, namespace: default}
"""


@pytest.fixture
def somebody(laboratory: Any, tmp_path: Path) -> Iterator[Any]:
    """Return a function that makes the option for a user who may read some resources."""

    def kubeconfig(resources: str) -> str:
        laboratory.kubectl("apply", "-f", "-", stdin=RIGHTS.replace("RESOURCES", resources))
        return str(laboratory.kubeconfig_of("somebody", tmp_path / "kubeconfig"))

    yield kubeconfig
    laboratory.kubectl("delete", "-f", "-", stdin=RIGHTS.replace("RESOURCES", "[]"))


@pytest.mark.parametrize(
    ("allowed", "verb", "resource"),
    [("[pods]", "list", "nodes"), ("[nodes, pods]", "list", "daemonsets.apps")],
)
def test_forbidden_by_rbac(laboratory, refused, somebody, allowed, verb, resource):
    text = refused("-e", somebody(allowed))
    assert "CLUSTER_FORBIDDEN" in text
    assert f"does not let system:serviceaccount:default:somebody {verb} {resource} " in text


OTHERS_PLUGIN = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nvdp, namespace: kube-system}
spec:
  selector: {matchLabels: {app: nvdp}}
  template:
    metadata: {labels: {app: nvdp}}
    spec:
      nodeSelector: {nobody: has-it}
      containers:
        - {name: ctr, image: "nvcr.io/nvidia/k8s-device-plugin:v0.17.0"}
"""


def test_device_plugin_of_somebody_else(laboratory, refused):
    laboratory.kubectl("apply", "-f", "-", stdin=OTHERS_PLUGIN)
    try:
        assert re.search(r"DEVICE_PLUGIN_FOREIGN cluster: .* kube-system/nvdp", refused())
    finally:
        laboratory.kubectl("delete", "-f", "-", stdin=OTHERS_PLUGIN)


@pytest.fixture
def run_that_fails(laboratory: Any, tmp_path: Path) -> Any:
    """Return a function that runs site.yml up to gpu-1's wish for what there is not.

    The tests that use it are the last ones: what comes before the failure stays.
    """

    def wish(group: Any) -> None:
        group["hosts"]["gpu-1"]["nvidia_container_runtime_version"] = "1.20.99"

    inventory = laboratory.inventory_with(tmp_path / "version.yml", wish)

    def run(*options: str, **watched: Any) -> str:
        command = ("metal.gpu.site", "--tags=runtime,verify", *options)
        result = laboratory.playbook(*command, inventory=inventory, **watched)
        assert result.returncode != 0, result.output[-4000:]
        words, _recap = result.output.split("PLAY RECAP")
        assert re.search(r"gpu-1 .* PACKAGE_VERSION_MISSING\b", words)  # in the table
        return str(words)

    return run


def test_no_node_is_begun_after_one_that_failed(laboratory, run_that_fails):
    before = fingerprint_of(laboratory, "gpu-2")
    words = run_that_fails("-e", "metal_gpu_serial=1")
    assert re.search(r"gpu-2 .* ROLLOUT_HALTED\b", words)
    assert re.search(r"ROLLOUT_HALTED gpu-2: waits, .* gpu-1\b", words)
    assert fingerprint_of(laboratory, "gpu-2") == before


def test_node_that_is_lost_on_the_way_is_in_the_table(laboratory, run_that_fails):
    """With a limit, too, which takes localhost out of the plays."""

    def cut(line: str) -> None:
        if "nvidia_container_runtime : Announce" in line:
            laboratory.lab("fault", "gpu-2", "cut-ssh")

    try:
        words = run_that_fails("--limit=gpu-1,gpu-2", watch=cut)
    finally:
        laboratory.lab("fault", "gpu-2", "restore-ssh")
    assert re.search(r"gpu-2 .* NODE_UNREACHABLE\b", words)
