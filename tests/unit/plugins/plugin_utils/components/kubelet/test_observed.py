# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import os
import time

import pytest

from ansible_collections.metal.gpu.tests.unit.support.observing import (
    UNITS,
    active_since,
)
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import (
    parse_scene,
    plant,
    recording,
)

# Of CN=system:node:gpu-old.example, made with OpenSSL 3.0.16; its key was not kept.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIB0DCCAXWgAwIBAgIULA4HDRmAUKNqnLTNrDSwrR+F8cUwCgYIKoZIzj0EAwIw
PTEVMBMGA1UECgwMc3lzdGVtOm5vZGVzMSQwIgYDVQQDDBtzeXN0ZW06bm9kZTpn
cHUtb2xkLmV4YW1wbGUwHhcNMjYxMTIyMDg1MzIyWhcNMzYxMTE5MDg1MzIyWjA9
MRUwEwYDVQQKDAxzeXN0ZW06bm9kZXMxJDAiBgNVBAMMG3N5c3RlbTpub2RlOmdw
dS1vbGQuZXhhbXBsZTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABMEtsjoMXGTG
cMWFs+GAdeh38UOF+9Od3QOvREo4VK1/jdZvW2C3fvf16+ogFrXwc43LSxKlI9aT
cJqzWNx6mMCjUzBRMB0GA1UdDgQWBBQqjToVW88oMDw9W53z8vlQe0106TAfBgNV
HSMEGDAWgBQqjToVW88oMDw9W53z8vlQe0106TAPBgNVHRMBAf8EBTADAQH/MAoG
CCqGSM49BAMCA0kAMEYCIQCFXWHXSbSF3mhcFI7ep3gS5NfKesulQLkS6IkqkiAm
uQIhAIUeWbykFdmG7+QhaqG1b0ViMZFj5+xzez0+feFG9eBT
-----END CERTIFICATE-----
"""


def test_every_place_of_a_gate_is_found(observe, tmp_path):
    plant(tmp_path, parse_scene(recording("nodes/kubelet-gates.txt")))
    programs = Programs(
        {
            "systemctl show": (0, UNITS.format(kubelet="activating"), ""),
            "kubelet": (0, "Kubernetes v1.37.1\n", ""),
            "journalctl": (0, recording("kubelet/journal-1.37.1-gate-in-config.txt"), ""),
        }
    )
    node = observe(programs)
    found = node["kubelet"]
    unit_d = "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf"
    columns = ("name", "value", "file", "where", "flag", "effective")
    assert [tuple(gate[column] for column in columns) for gate in found["feature_gates"]] == [
        (
            *("DevicePlugins", True, "/var/lib/kubelet/kubeadm-flags.env"),
            *("flag", "KUBELET_KUBEADM_ARGS", True),
        ),
        (
            *("DevicePlugins", True, "/etc/default/kubelet"),
            *("flag", "KUBELET_EXTRA_ARGS", True),
        ),
        ("CPUManager", None, "/etc/default/kubelet", "flag", "KUBELET_EXTRA_ARGS", True),
        (
            *("DevicePlugins", True, "/etc/systemd/system/kubelet.service.d/20-gpu.conf"),
            *("flag", "KUBELET_EXTRA_ARGS", False),
        ),
        ("DevicePlugins", True, "/etc/sysconfig/kubelet", "flag", "KUBELET_EXTRA_ARGS", False),
        ("DevicePlugins", True, "/var/lib/kubelet/config.yaml", "config", None, True),
        (
            "DevicePlugins",
            True,
            "/etc/kubernetes/kubelet.conf.d/10-gates.conf",
            "config",
            None,
            True,
        ),
    ]
    assert {
        "name": "--kubeconfig",
        "value": "/etc/kubernetes/kubelet.conf",
        "file": unit_d,
        "variable": "KUBELET_KUBECONFIG_ARGS",
        "effective": True,
    } in found["flags"]
    assert "--v" not in [flag["name"] for flag in found["flags"]]
    assert found["config_dir"]["path"] == "/etc/kubernetes/kubelet.conf.d"
    assert found["running"] is False
    assert found["unit_state"]["active"] == "activating"
    assert found["last_error"].endswith("unrecognized feature gate: DevicePlugins")
    assert found["endpoint"] == "unix:///run/containerd/containerd.sock"
    assert node["cgroup"]["driver"] == "systemd"
    (tmp_path / "var/lib/kubelet/config.yaml").unlink()  # as before `kubeadm join`
    assert observe(programs)["cgroup"]["driver"] is None


def test_a_host_that_was_renamed_keeps_its_name_in_the_cluster(observe, tmp_path):
    plant(tmp_path, {"/proc/sys/kernel/hostname": "GPU-9\n"})
    plant(tmp_path, {"/var/lib/kubelet/pki/kubelet-client-current.pem": CERTIFICATE})
    kubelet = observe(Programs({}))["kubelet"]
    names = (kubelet["node_name"], kubelet["own_name"], kubelet["joined_name"])
    assert names == ("gpu-old.example", "gpu-9", "gpu-old.example")


@pytest.mark.parametrize(
    "line", ["client-certificate: pki/node.pem", "client-certificate-data: {}"]
)
def test_a_kubeconfig_elsewhere_has_the_certificate(observe, tmp_path, line):
    path = "/srv/kubelet/kubeconfig"
    unit = f"[Service]\nExecStart=/usr/bin/kubelet --kubeconfig {path}\n"
    data = base64.b64encode(CERTIFICATE.encode()).decode()
    plant(tmp_path, {"/etc/systemd/system/kubelet.service": unit})
    plant(tmp_path, {path: f"users:\n- user:\n    {line.format(data)}\n"})
    plant(tmp_path, {"/srv/kubelet/pki/node.pem": CERTIFICATE})
    assert observe(Programs({}))["kubelet"]["joined_name"] == "gpu-old.example"


def test_a_node_of_k3s_has_a_kubelet_that_is_not_its_own(observe):
    show = "Id=k3s.service\nLoadState=loaded\nActiveState=active\n"
    kubelet = observe(Programs({"systemctl show": (0, show, "")}))["kubelet"]
    assert kubelet["distribution"] == {"name": "k3s", "unit": "k3s.service"}


@pytest.mark.parametrize(
    ("changed_s", "known"),
    [
        pytest.param(30, False, id="after the start"),
        pytest.param(90, True, id="before it"),
        pytest.param(-3600, True, id="in the future, which tells nothing"),
    ],
)
def test_a_kubelet_that_does_not_know_its_settings(observe, tmp_path, changed_s, known):
    texts = parse_scene(recording("nodes/kubelet-gates.txt"))
    plant(tmp_path, texts)
    for path in texts:
        os.utime(tmp_path / path[1:], times=(time.time() - 90,) * 2)
    path = "/etc/default/kubelet"
    os.utime(tmp_path / path[1:], times=(time.time() - changed_s,) * 2)
    state = active_since("kubelet", time.monotonic() - 60)
    node = observe(Programs({"systemctl show": (0, state, "")}))
    assert node["kubelet"]["changed_since_start"] == ([] if known else [path])


KUBELET_DROP_INS = "/etc/kubernetes/kubelet.conf.d"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("featureGates:\n  DevicePlugins: true\n", None, id="right"),
        pytest.param("a: b: c\n", "line 1, column 5: mapping values are not allowed", id="syntax"),
        pytest.param("- a\n", "line 1, column 1: the document is not a mapping", id="list"),
        pytest.param("a: 2026-13-01\n", None, id="what looks like a date is text to the kubelet"),
    ],
)
def test_a_file_of_the_kubelet_that_does_not_parse(observe, tmp_path, text, error):
    """Each of them ends the kubelet at its next start, drop-ins too."""
    config, drop_in = "/var/lib/kubelet/config.yaml", f"{KUBELET_DROP_INS}/10-site.conf"
    flags = f"--config={config} --config-dir={KUBELET_DROP_INS}"
    unit = f"[Service]\nExecStart=/usr/bin/kubelet {flags}\n"
    plant(tmp_path, {"/etc/systemd/system/kubelet.service": unit, config: text, drop_in: text})
    kubelet = observe(Programs({}))["kubelet"]
    assert [one["path"] for one in kubelet["config_dir"]["files"]] == [drop_in]
    for found in (kubelet["config"], *kubelet["config_dir"]["files"]):
        assert (found["error"] is None) if error is None else (error in found["error"])
        assert error is None or found["error"].startswith(found["path"])


def test_a_drop_in_of_the_kubelet_that_cannot_be_read(observe, tmp_path):
    unit = f"[Service]\nExecStart=/usr/bin/kubelet --config-dir={KUBELET_DROP_INS}\n"
    plant(tmp_path, {"/etc/systemd/system/kubelet.service": unit})
    (tmp_path / KUBELET_DROP_INS[1:]).mkdir(parents=True)
    (tmp_path / KUBELET_DROP_INS[1:] / "10.conf").symlink_to("10.conf")
    path = f"{KUBELET_DROP_INS}/10.conf"
    error = f"{path}: Too many levels of symbolic links"
    files = observe(Programs({}))["kubelet"]["config_dir"]["files"]
    assert files == [{"path": path, "error": error, "obstacle": None}]
