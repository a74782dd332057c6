# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils import kubelet
from ansible_collections.metal.gpu.plugins.module_utils.command_line import Flag
from ansible_collections.metal.gpu.plugins.module_utils.kubelet import FeatureGate
from ansible_collections.metal.gpu.tests.unit.support.recordings import recording

OTHER = "unix:///run/crio/crio.sock"


def flag(name, value):
    return Flag(name, value, "/f", None, True)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("DevicePlugins=true", {"DevicePlugins": True}),
        ("A=1, B=F,", {"A": True, "B": False}),
        pytest.param("A=yes,B", {"A": None, "B": None}, id="not-a-boolean"),
        ("", {}),
    ],
)
def test_parse_gates_flag(value, expected):
    assert kubelet.parse_gates_flag(value) == expected


def test_feature_gates_tells_every_place():
    flags = [
        Flag("--feature-gates", "A=true,B=false", "/etc/default/kubelet", "EXTRA", True),
        Flag("--feature-gates", "A=true", "/unit", None, True),
        Flag("--v", "2", "/unit", None, True),
    ]
    documents = [("/c.yaml", {"featureGates": {"A": True, "C": "yes"}}), ("/d.yaml", {})]
    assert kubelet.feature_gates(flags, documents) == (
        FeatureGate("A", True, "/etc/default/kubelet", "flag", "EXTRA", True),
        FeatureGate("B", False, "/etc/default/kubelet", "flag", "EXTRA", True),
        FeatureGate("A", True, "/unit", "flag", "--feature-gates", True),
        FeatureGate("A", True, "/c.yaml", "config", None, True),
        FeatureGate("C", None, "/c.yaml", "config", None, True),
    )


@pytest.mark.parametrize(
    ("journal", "expected"),
    [
        pytest.param(
            recording("kubelet/journal-1.37.1-gate-in-flag.txt"),
            'run.go:72] "command failed" err="failed to set feature gates from initial flags-based'
            ' config: unrecognized feature gate: DevicePlugins"',
            id="gate-in-flag",
        ),
        pytest.param(
            recording("kubelet/journal-1.37.1-gate-in-config.txt"),
            "panic: failed to merge global and in-flight KubeletConfiguration while setting"
            " defaults, error: unrecognized feature gate: DevicePlugins",
            id="gate-in-config",
        ),
        pytest.param(
            recording("kubelet/journal-1.37.1-gate-in-flag.txt")
            + "Nov 21 12:30:00 check-disks[2600]: looking\n"
            + "Nov 21 12:30:00 check-disks[2600]: no such disk\n",
            "no such disk",
            id="its-owner's-own-check",
        ),
    ],
)
def test_parse_last_error(journal, expected):
    assert kubelet.parse_last_error(journal).endswith(expected)


def test_no_last_error():
    assert kubelet.parse_last_error("") is None


@pytest.mark.parametrize(
    ("flags", "documents", "version", "expected"),
    [
        pytest.param([], [], "1.37.1", kubelet.DEFAULT_ENDPOINT, id="default"),
        pytest.param([], [], "1.26.0", None, id="no-default-yet"),
        pytest.param([], [], None, None, id="no-kubelet"),
        pytest.param([], [{"containerRuntimeEndpoint": OTHER}], "1.37.1", OTHER, id="config"),
        pytest.param(
            [],
            [{"containerRuntimeEndpoint": "unix:///a"}, {"containerRuntimeEndpoint": OTHER}, {}],
            "1.37.1",
            OTHER,
            id="drop-in-wins",
        ),
        pytest.param(
            [flag("--container-runtime-endpoint", OTHER)],
            [{"containerRuntimeEndpoint": "unix:///a"}],
            "1.37.1",
            OTHER,
            id="flag-wins",
        ),
    ],
)
def test_endpoint(flags, documents, version, expected):
    assert kubelet.endpoint(flags, documents, version) == expected


@pytest.mark.parametrize(
    ("flags", "documents", "expected"),
    [
        pytest.param([], [], "cgroupfs", id="default"),
        pytest.param([], [{"cgroupDriver": "systemd"}], "systemd", id="config"),
        pytest.param([flag("--cgroup-driver", "systemd")], [{}], "systemd", id="flag"),
    ],
)
def test_cgroup_driver(flags, documents, expected):
    assert kubelet.cgroup_driver(flags, documents) == expected


@pytest.mark.parametrize(
    ("flags", "expected"), [([], "gpu-1"), ([flag("--hostname-override", "Node-A")], "node-a")]
)
def test_node_name(flags, expected):
    assert kubelet.node_name(flags, "GPU-1\n") == expected
