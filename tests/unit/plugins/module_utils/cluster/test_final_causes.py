# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import Cause
from ansible_collections.metal.gpu.plugins.module_utils.cluster.final_causes import (
    is_final,
    patience_s,
    told_at,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import NodeStatus
from ansible_collections.metal.gpu.plugins.module_utils.cluster.plugin_causes import Facts

REFUSED = "Error registering plugin: device plugin already connected"
ACCEPTED = "Registered device plugin for 'nvidia.com/gpu' with Kubelet"


def facts(state: dict[str, Any] | None = None, restarts: int = 0, log: tuple[str, ...] = ()) -> Any:
    status = NodeStatus(Decimal(0), Decimal(0), True, {}, {})
    container = {"name": "p", "ready": False, "state": state or {}, "restartCount": restarts}
    pod = {"metadata": {"name": "p"}, "status": {"containerStatuses": [container]}}
    return Facts("gpu-1", status, [], [pod] if state is not None else [], {"p": log}, [])


def waits(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


@pytest.mark.parametrize(
    ("code", "evidence", "found", "final"),
    [
        ("DEVICE_PLUGIN_MISSING", {}, facts(), True),
        ("DEVICE_PLUGIN_NOT_SELECTED", {}, facts(), True),
        ("NODE_TAINTED", {"taint": "repair=now:NoExecute"}, facts(), True),
        ("NODE_TAINTED", {"taint": "node.cilium.io/agent-not-ready:NoExecute"}, facts(), False),
        (
            "NODE_TAINTED",
            {"taint": "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule"},
            facts(),
            False,
        ),
        (
            "NODE_TAINTED",
            {"taint": "node.kubernetes.io/network-unavailable:NoSchedule"},
            facts(),
            False,
        ),
        ("NODE_TAINTED", {"taint": "karpenter.sh/unregistered:NoExecute"}, facts(), False),
        # NVIDIA's operator takes its pods away while it changes the driver or MIG.
        (
            "DEVICE_PLUGIN_NOT_SELECTED",
            {"found": "has nvidia.com/gpu.deploy.device-plugin=paused-for-mig-change"},
            facts(),
            False,
        ),
        # A pull is tried again where that can help.
        (
            "DEVICE_PLUGIN_IMAGE_UNAVAILABLE",
            {},
            facts(waits("ImagePullBackOff", "Back-off pulling image: no such host")),
            False,
        ),
        (
            "DEVICE_PLUGIN_IMAGE_UNAVAILABLE",
            {},
            facts(waits("ErrImagePull", "manifest unknown")),
            True,
        ),
        ("DEVICE_PLUGIN_IMAGE_UNAVAILABLE", {}, facts(waits("ErrImageNeverPull")), True),
        ("DEVICE_PLUGIN_NOT_STARTED", {}, facts(waits("CreateContainerConfigError")), True),
        # A plugin may crash once or twice while a driver or a kubelet starts.
        ("DEVICE_PLUGIN_CRASHES", {}, facts(waits("CrashLoopBackOff"), 1), False),
        ("DEVICE_PLUGIN_CRASHES", {}, facts(waits("CrashLoopBackOff"), 2), True),
        ("DEVICE_PLUGIN_BLIND", {}, facts(waits("CrashLoopBackOff"), 1), False),
        ("DEVICE_PLUGIN_BLIND", {}, facts({"running": {"startedAt": "x"}}), True),
        ("DEVICE_PLUGIN_UNREGISTERED", {}, facts({"running": {}}, 0, (REFUSED,)), False),
        ("DEVICE_PLUGIN_UNREGISTERED", {}, facts({"running": {}}, 0, (REFUSED, REFUSED)), True),
        (
            "DEVICE_PLUGIN_UNREGISTERED",
            {},
            facts({"running": {}}, 0, (REFUSED, REFUSED, ACCEPTED, REFUSED)),
            False,
        ),
        ("CDI_UNRESOLVABLE", {}, facts(waits("ContainerCreating")), False),
        ("CDI_UNRESOLVABLE", {}, facts(waits("RunContainerError", "unresolvable")), True),
        ("RUNTIME_CLASS_UNSUPPORTED", {}, facts(waits("ContainerCreating")), True),
        ("POD_REJECTED", {"error": "denied the request: no"}, facts(), True),
        ("POD_REJECTED", {"error": 'failed calling webhook "a": refused'}, facts(), False),
        # They end by themselves.
        ("NODE_NOT_READY", {}, facts(), False),
        ("NODE_FULL", {}, facts(), False),
        ("ENGINE_SILENT", {}, facts(), False),
        ("POD_OVER_QUOTA", {"error": "exceeded quota"}, facts(), False),
    ],
)
def test_what_lasts_until_somebody_does_something(code, evidence, found, final):
    assert is_final(Cause(code, evidence), found) is final


def test_nothing_known_is_not_final():
    assert is_final(None, facts()) is False


@pytest.mark.parametrize(
    ("evidence", "is_patient"),
    [
        ({}, False),
        ({"labels": "gpu=true"}, False),
        ({"labels": "nvidia.com/gpu.present=true"}, False),
        ({"labels": "gpu=true nvidia.com/gpu.deploy.device-plugin=true"}, True),
        ({"affinity": "feature.node.kubernetes.io/pci-10de.present In (true)"}, True),
        ({"affinity": "kubernetes.io/arch In (arm64)"}, False),
    ],
)
def test_labels_that_a_discovery_sets_take_a_moment(evidence, is_patient):
    assert (patience_s(Cause("DEVICE_PLUGIN_NOT_SELECTED", evidence)) > 0) is is_patient


def warning(kind, name, message):
    about = {"kind": kind, "name": name}
    row = {"type": "Warning", "reason": "Failed", "message": message, "lastTimestamp": "2026"}
    return {"metadata": {"name": message}, "involvedObject": about, **row}


def test_only_causes_that_an_event_tells_are_as_old_as_it():
    handler, denied = Cause("RUNTIME_HANDLER_MISSING", {}), Cause("POD_REJECTED", {"error": ""})
    creating, event = facts(waits("ContainerCreating")), warning("Pod", "p", "no runtime")
    assert told_at(handler, creating._replace(events=[event])) == "2026"
    assert told_at(handler, creating) == ""
    assert told_at(Cause("NODE_PRESSURE", {}), creating._replace(events=[event])) == ""
    assert told_at(handler, facts(waits("CreateContainerError"))._replace(events=[event])) == ""
    without = facts()._replace(
        daemonsets=[{"metadata": {"name": "d"}}], events=[warning("DaemonSet", "d", "denied")]
    )
    assert told_at(denied, without) == "2026"
