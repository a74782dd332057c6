# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import datetime
import warnings

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ansible_collections.metal.gpu.plugins.module_utils.read import kubelet
from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import Flag
from ansible_collections.metal.gpu.tests.unit.support.recordings import recording

OTHER = "unix:///run/crio/crio.sock"
SOCKET = "/run/containerd/containerd.sock"


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
    found = kubelet.feature_gates(flags, documents)
    assert [tuple(gate.values()) for gate in found] == [
        ("A", True, "/etc/default/kubelet", "flag", "EXTRA", True),
        ("B", False, "/etc/default/kubelet", "flag", "EXTRA", True),
        ("A", True, "/unit", "flag", "--feature-gates", True),
        ("A", True, "/c.yaml", "config", None, True),
        ("C", None, "/c.yaml", "config", None, True),
    ]


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
        pytest.param(
            [], [{"CgroupDriver": "systemd"}], "cgroupfs", id="case counts, as run with 1.32.3"
        ),
        pytest.param([flag("--cgroup-driver", "systemd")], [{}], "systemd", id="flag"),
    ],
)
def test_cgroup_driver(flags, documents, expected):
    assert kubelet.cgroup_driver(flags, documents) == expected


@pytest.mark.parametrize(
    ("flags", "joined", "expected"),
    [
        pytest.param([], None, "gpu-1", id="host"),
        pytest.param([], "former", "former", id="certificate"),
        pytest.param([flag("--hostname-override", "Node-A")], "former", "node-a", id="flag"),
        pytest.param([flag("--hostname-override", "$(x)")], "former", "former", id="expanded flag"),
        pytest.param(
            [flag("--hostname-override", "$(x)")], None, "gpu-1", id="expanded flag, no certificate"
        ),
    ],
)
def test_node_name(flags, joined, expected):
    assert kubelet.node_name(flags, joined, "GPU-1\n") == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], "gpu-1"),
        ([flag("--hostname-override", "Node-A")], "node-a"),
        # A shell or systemd expands these.
        ([flag("--hostname-override", "$(hostname -f)")], None),
        ([flag("--hostname-override", "$")], None),
        ([flag("--hostname-override", "`hostname")], None),
        ([flag("--hostname-override", "%H")], None),
        ([flag("--cloud-provider", "external")], "gpu-1"),
        pytest.param(
            [flag("--cloud-provider", "openstack")], None, id="the cloud provider determines it"
        ),
    ],
)
def test_own_name(flags, expected):
    assert kubelet.own_name(flags, "GPU-1\n") == expected


def certificate(name, *, text=x509.name._ASN1Type.PrintableString, issuer="kubernetes"):
    """Return a client certificate for a user of the API server, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)
    with warnings.catch_warnings(action="ignore"):  # about names that are too long for X.520
        names = [
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one, text, _validate=False)])
            for one in (issuer, name)
        ]
    builder = x509.CertificateBuilder(
        *names, key.public_key(), 1, now, now + datetime.timedelta(days=1)
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def embedded(pem):
    data = base64.b64encode(pem.encode()).decode()
    return f"users:\n- name: a\n  user:\n    client-certificate-data: {data}\n"


KEY = "-----BEGIN EC PRIVATE KEY-----\nc2VjcmV0\n-----END EC PRIVATE KEY-----\n"
NODE = certificate("system:node:gpu-1.example")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(NODE, "gpu-1.example", id="certificate"),
        pytest.param(NODE + KEY, "gpu-1.example", id="with its key"),
        pytest.param(KEY + NODE, "gpu-1.example", id="behind its key"),
        pytest.param(embedded(NODE), "gpu-1.example", id="in a kubeconfig"),
        pytest.param(
            certificate("system:node:a_b", text=x509.name._ASN1Type.UTF8String), "a_b", id="UTF-8"
        ),
        pytest.param(certificate(f"system:node:{'n' * 200}"), "n" * 200, id="long"),
        pytest.param(certificate("system:node:a", issuer="system:node:ca"), "a", id="issuer"),
        pytest.param(certificate("kubernetes-admin"), None, id="not a node"),
        pytest.param(f"{NODE[:200]}\n{NODE[-27:]}", None, id="cut"),
        pytest.param("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", None, id="bad"),
        pytest.param("client-certificate-data: '!'\n", None, id="bad data"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_joined_name(text, expected):
    assert kubelet.joined_name(text) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("    client-certificate: /var/lib/kubelet/pki/a.pem", "/var/lib/kubelet/pki/a.pem"),
        ('    client-certificate: "/a.pem" # mine', "/a.pem"),
        ("    client-certificate: pki/a.pem", "/etc/kubernetes/pki/a.pem"),
        ("    client-certificate-data: abc", None),
        ("    client-key: /a.pem", None),
    ],
)
def test_certificate_file(line, expected):
    kubeconfig = f"users:\n- user:\n{line}\n"
    assert kubelet.certificate_file("/etc/kubernetes/kubelet.conf", kubeconfig) == expected


@pytest.mark.parametrize(
    ("flags", "documents", "expected"),
    [
        pytest.param({}, [], "http://127.0.0.1:10248/healthz", id="default"),
        pytest.param({}, [{"healthzPort": 10300}], "http://127.0.0.1:10300/healthz", id="port"),
        pytest.param({}, [{"healthzPort": 0}], None, id="off"),
        pytest.param({}, [{"healthzBindAddress": "::1"}], "http://[::1]:10248/healthz", id="IPv6"),
        pytest.param(
            {}, [{"healthzBindAddress": "0.0.0.0"}], "http://127.0.0.1:10248/healthz", id="any"
        ),
        pytest.param(
            {}, [{"healthzBindAddress": "::"}], "http://[::1]:10248/healthz", id="any of IPv6"
        ),
        pytest.param(
            {},
            [{"healthzPort": 1, "healthzBindAddress": "10.0.0.1"}, {"healthzPort": 2}],
            "http://10.0.0.1:2/healthz",
            id="drop-in",
        ),
        pytest.param(
            {"--healthz-port": "3", "--healthz-bind-address": "::1"},
            [{"healthzPort": 1, "healthzBindAddress": "10.0.0.1"}],
            "http://[::1]:3/healthz",
            id="flags",
        ),
        pytest.param({"--healthz-port": "0"}, [{"healthzPort": 1}], None, id="off by a flag"),
    ],
)
def test_health_url(flags, documents, expected):
    given = [flag(name, value) for name, value in flags.items()]
    assert kubelet.health_url(given, documents) == expected


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [
        pytest.param("unix:///run/containerd/containerd.sock", SOCKET, id="usual"),
        pytest.param("unix:///var/run/containerd/containerd.sock", SOCKET, id="kubeadm"),
        pytest.param("/var/run/containerd/containerd.sock", SOCKET, id="no scheme"),
        pytest.param("unix:/run/containerd/containerd.sock", SOCKET, id="no authority"),
        pytest.param("unix:///var/runner/a.sock", "/var/runner/a.sock", id="another folder"),
        pytest.param("unix:///data/var/run/a.sock", "/data/var/run/a.sock", id="further down"),
        pytest.param("", "", id="none"),
    ],
)
def test_one_socket_has_one_path(endpoint, path):
    assert kubelet.socket_path(endpoint) == path
