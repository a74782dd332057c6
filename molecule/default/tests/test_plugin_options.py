# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of the device plugin: what the plugin then does, and what it does without them."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

DAEMONSET = ("daemonset", "nvidia-device-plugin", "--namespace=kube-system")
PODS = ("pods", "--namespace=kube-system", "-l", "app.kubernetes.io/name=nvidia-device-plugin")
REPLICAS = 5
# gpu-1 and gpu-2 are the nodes of the play, so this excludes neither.
TERM = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}
    }
}
OPTIONS = {
    "device_plugin_config": {
        "sharing": {
            "timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": REPLICAS}]}
        }
    },
    "device_plugin_env": {"PASS_DEVICE_SPECS": True, "DEVICE_ID_STRATEGY": "index"},
    "device_plugin_affinity": AFFINITY,
}


def site(laboratory: Any, **variables: Any) -> Any:
    options = ("-e", json.dumps(variables)) if variables else ()
    run = laboratory.playbook("metal.gpu.site", "--tags=device_plugin,verify", *options)
    assert run.returncode == 0
    return run


def pod_spec(laboratory: Any) -> Any:
    return laboratory.objects(*DAEMONSET)["spec"]["template"]["spec"]


def capacity(laboratory: Any, node: str) -> int:
    return int(laboratory.objects("node", node)["status"]["allocatable"]["nvidia.com/gpu"])


def running_options(laboratory: Any, node: str) -> Any:
    """Return the configuration that the plugin's log on a node says it runs with."""
    (name,) = (
        pod["metadata"]["name"]
        for pod in laboratory.objects(*PODS)["items"]
        if pod["spec"]["nodeName"] == node and "deletionTimestamp" not in pod["metadata"]
    )
    log = laboratory.kubectl("logs", name, "--namespace=kube-system")
    return json.loads(re.search(r"^\{\n.*?^\}$", log, re.M | re.S)[0])


def test_variables_are_in_effect_and_go_without_a_trace(laboratory):
    before = pod_spec(laboratory)
    run = site(laboratory, **OPTIONS)
    assert pod_spec(laboratory)["affinity"] == AFFINITY
    for node, gpus in laboratory.gpu_count.items():
        shares = gpus * REPLICAS
        assert capacity(laboratory, node) == shares
        assert re.search(rf"{node} .*? {shares} +{shares} +1/1 +ok\b", run.output)
        options = running_options(laboratory, node)
        assert options["flags"]["plugin"]["passDeviceSpecs"] is True
        assert options["flags"]["plugin"]["deviceIDStrategy"] == "index"
        assert options["sharing"]["timeSlicing"]["resources"][0]["replicas"] == REPLICAS

    again = laboratory.playbook("metal.gpu.site", "--tags=device_plugin", "-e", json.dumps(OPTIONS))
    assert again.returncode == 0
    assert {*laboratory.addresses} <= {*again.unchanged}

    # A new value replaces the pods, which read their file only when they start.
    changed = yaml.safe_load(json.dumps(OPTIONS))
    changed["device_plugin_config"]["sharing"]["timeSlicing"]["resources"][0]["replicas"] = 2
    site(laboratory, **changed)
    for node, gpus in laboratory.gpu_count.items():
        assert capacity(laboratory, node) == gpus * 2

    run = site(laboratory)
    assert pod_spec(laboratory) == before
    for node, gpus in laboratory.gpu_count.items():
        assert capacity(laboratory, node) == gpus
        assert re.search(rf"{node} .*? {gpus} +{gpus} +{gpus}/{gpus} +ok\b", run.output)
