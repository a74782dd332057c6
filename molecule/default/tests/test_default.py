# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two virgin nodes with containerd after site.yml. Each test asserts what a user would lose."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import footprint
import pytest
import registries
import yaml

LABELLED = ("nodes", "-l", "nvidia.com/gpu.present=true")
CRI = "io.containerd.cri.v1.runtime"

# The image sets NVIDIA_VISIBLE_DEVICES=all, as every CUDA image does. The pod requests no GPU.
UNASKED = """
apiVersion: v1
kind: Pod
metadata: {name: unasked, namespace: default}
spec:
  restartPolicy: Never
  containers:
    - name: cuda
      image: nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04
      command: [sh, -c, "ls /dev | grep -c nvidia; true"]
"""


def test_containerd_has_the_runtime_and_keeps_the_admins_settings(laboratory, node):
    dump = laboratory.host(node).check_output("containerd config dump")
    tables = dict(re.findall(r"^\s*\[(.+)\]\n((?:(?!\s*\[).*\n)*)", dump + "\n", re.M))
    runtimes = f"plugins.'{CRI}'.containerd.runtimes"
    assert "/usr/bin/nvidia-container-runtime" in tables[f"{runtimes}.nvidia.options"]
    assert "SystemdCgroup = true" in tables[f"{runtimes}.nvidia.options"]
    assert "SystemdCgroup = true" in tables[f"{runtimes}.runc.options"]
    assert "default_runtime_name = 'runc'" in tables[f"plugins.'{CRI}'.containerd"]
    assert "max_container_log_line_size = 32768" in tables[f"plugins.'{CRI}'"]
    assert "/usr/lib/cni" in tables[f"plugins.'{CRI}'.cni"]


def test_admins_comments_survive(laboratory, node):
    config = laboratory.host(node).file("/etc/containerd/config.toml").content_string
    assert "# mirrored in house" in config
    assert "# as the kubelet" in config


def test_imported_folder_is_used(laboratory):
    """The admin of gpu-2 imports a folder, so config.toml itself does not change."""
    config = laboratory.host("gpu-2").file("/etc/containerd/config.toml")
    assert "nvidia" not in config.content_string


def test_historical_gate_is_gone(laboratory):
    """gpu-2 had the gate in three places. The kubelet reports its effective configuration."""
    effective = json.loads(laboratory.kubectl("get", "--raw", "/api/v1/nodes/gpu-2/proxy/configz"))
    assert "DevicePlugins" not in effective["kubeletconfig"].get("featureGates", {})
    kubelet = laboratory.host("gpu-2").check_output("ps -o args= -C kubelet")
    assert "DevicePlugins" not in kubelet
    assert "--v=2" in kubelet  # the admin's flag in the same line


def test_pod_that_requests_no_gpu_sees_none(laboratory):
    laboratory.kubectl("apply", "-f", "-", stdin=UNASKED)
    try:
        laboratory.kubectl(
            "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/unasked", "--timeout=60s"
        )
        assert laboratory.kubectl("logs", "unasked").strip() == "0"
    finally:
        laboratory.kubectl("delete", "pod", "unasked")


def plugin(laboratory: Any) -> list[Any]:
    return list(
        laboratory.objects(
            "daemonsets,runtimeclasses", "-A", "-l", "app.kubernetes.io/managed-by=metal.gpu"
        )["items"]
    )


def test_device_plugin_is_changed_in_place(laboratory):
    before = {item["metadata"]["uid"] for item in plugin(laboratory)}
    arguments = json.dumps({"device_plugin_args": ["--device-id-strategy=index"]})
    run = laboratory.playbook("metal.gpu.site", "--tags=device_plugin,verify", "-e", arguments)
    assert run.returncode == 0
    pods = laboratory.objects("pods", "-A", "-l", "app.kubernetes.io/name=nvidia-device-plugin")
    assert {"--device-id-strategy=index"} == {
        argument
        for pod in pods["items"]
        for container in pod["spec"]["containers"]
        for argument in container["args"]
    }
    assert {item["metadata"]["uid"] for item in plugin(laboratory)} == before


@pytest.fixture
def pull_secret(laboratory: Any) -> Iterator[str]:
    """The login of the registry, in a Secret of the pods' namespace."""
    registry = laboratory.facts["registry"]
    login = base64.b64encode(f"{registry['username']}:{registry['password']}".encode()).decode()
    content = json.dumps({"auths": {"nvcr.io": {"auth": login}}})
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "registry", "namespace": "default"},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": content},
    }
    laboratory.kubectl("apply", "-f", "-", stdin=json.dumps(secret))
    yield "registry"
    laboratory.kubectl("delete", "secret", "registry")


def test_pod_pulls_with_its_own_secret_where_the_node_has_no_login(
    laboratory, pull_secret, tmp_path
):
    inventory = registries.without_login(laboratory, tmp_path / "inventory.yml")
    variables = {
        "verify_level": "list",
        "verify_smoke_image": "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda11.7.1",  # not there
        "verify_smoke_image_pull_secrets": [pull_secret],
    }
    configure = ("metal.gpu.site", "--tags=registries")
    try:
        assert laboratory.playbook(*configure, inventory=inventory).returncode == 0
        run = laboratory.playbook(
            "metal.gpu.verify", "-e", json.dumps(variables), inventory=inventory
        )
    finally:
        assert laboratory.playbook(*configure).returncode == 0
    assert run.returncode == 0


THEIRS = {"name": "nvdp", "namespace": "kube-system"}


def as_foreign(daemonset: Any) -> str:
    """Return our device plugin and its RuntimeClass as another tool would have installed them."""
    spec = daemonset["spec"]
    spec["selector"]["matchLabels"] = spec["template"]["metadata"]["labels"] = {"app": "nvdp"}
    del spec["template"]["spec"]["nodeSelector"]
    theirs = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": THEIRS, "spec": spec}
    runtime_class = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": spec["template"]["spec"]["runtimeClassName"]},
        "handler": "nvidia",
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [runtime_class, theirs]})


def test_device_plugin_goes_and_a_foreign_one_is_adopted(laboratory):
    ours = laboratory.objects("daemonset", "nvidia-device-plugin", "--namespace=kube-system")
    run = laboratory.playbook(
        "metal.gpu.site", "--tags=device_plugin", "-e", "device_plugin_state=absent"
    )
    assert run.returncode == 0
    assert plugin(laboratory) == []
    assert laboratory.objects(*LABELLED)["items"] == []

    theirs = as_foreign(ours)
    laboratory.kubectl("apply", "--server-side", "-f", "-", stdin=theirs)
    adopt = "device_plugin_foreign=adopt device_plugin_adopt=kube-system/nvdp"
    run = laboratory.playbook("metal.gpu.site", "-e", adopt)
    assert run.returncode == 0
    assert "DEVICE_PLUGIN_ADOPTED" in run.output
    assert re.search(r"gpu-1 .*?(\s+4){5}\s+4/4\s+ok\b", run.output)
    assert plugin(laboratory) == []
    adopted = laboratory.objects("daemonset", "nvdp", "--namespace=kube-system")
    assert adopted["metadata"]["generation"] == 1
    laboratory.kubectl("delete", "--cascade=foreground", "-f", "-", stdin=theirs)


@pytest.fixture
def least_privileged(laboratory: Any, tmp_path: Path) -> Iterator[str]:
    """A user with the permissions of docs/permissions.yml, and no others."""
    roles = yaml.safe_load((footprint.PROJECT / "docs/permissions.yml").read_text())["items"]
    account = {"name": "operator", "namespace": "default"}
    bindings = [
        {
            "apiVersion": role["apiVersion"],
            "kind": f"{role['kind']}Binding",
            "metadata": role["metadata"],
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": role["kind"],
                "name": role["metadata"]["name"],
            },
            "subjects": [{"kind": "ServiceAccount", **account}],
        }
        for role in roles
    ]
    user = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}
    manifest = yaml.safe_dump_all([*roles, user, *bindings])
    laboratory.kubectl("apply", "-f", "-", stdin=manifest)
    yield laboratory.kubeconfig_of("operator", tmp_path / "kubeconfig")
    laboratory.kubectl("delete", "-f", "-", stdin=manifest)


def test_device_plugin_comes_back_with_the_least_permissions(laboratory, least_privileged):
    run = laboratory.playbook("metal.gpu.site", "-e", least_privileged)
    assert run.returncode == 0
    assert len(plugin(laboratory)) == 2
    assert len(laboratory.objects(*LABELLED)["items"]) == len(laboratory.addresses)
