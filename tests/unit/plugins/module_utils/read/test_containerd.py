# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import tomllib

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import containerd
from ansible_collections.metal.gpu.plugins.module_utils.read.containerd import Effective, Runtime
from ansible_collections.metal.gpu.tests.unit.support.recordings import recording

RUNC = Runtime(type="io.containerd.runc.v2", binary="", systemd_cgroup=False, base_runtime_spec="")
NVIDIA = {**RUNC, "binary": "/usr/bin/nvidia-container-runtime", "systemd_cgroup": True}
SOCKET = "/run/containerd/containerd.sock"
NO_LISTS = {**containerd.NO_REGISTRY, "reads_lists": False}


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        pytest.param(
            "dump-2.4.2-nvidia.toml",
            "2.4.2",
            Effective(SOCKET, True, True, "nvidia", {"nvidia": NVIDIA, "runc": RUNC}, NO_LISTS),
            id="2.4-nvidia",
        ),
        pytest.param(
            "dump-2.4.2-cri-disabled.toml",
            "2.4.2",
            Effective(SOCKET, False, True, "runc", {"runc": RUNC}, NO_LISTS),
            id="2.4-cri-disabled",
        ),
        pytest.param(
            "default-1.6.20.toml",
            "1.6.20",
            Effective(SOCKET, True, False, "runc", {"runc": RUNC}),
            id="1.6",
        ),
    ],
)
def test_parse_effective(name, version, expected):
    dump = tomllib.loads(recording(f"containerd/{name}"))
    assert containerd.parse_effective(dump, version) == expected


@pytest.mark.parametrize(
    ("cri", "version", "expected"),
    [
        ({"enable_cdi": True}, "1.7.33", True),
        ({"enable_cdi": False}, "1.7.33", False),
        ({"enable_cdi": False}, "2.2.7", False),
        ({}, "2.4.2", True),
    ],
)
def test_cdi(cri, version, expected):
    dump = {"plugins": {"io.containerd.cri.v1.runtime": cri}}
    assert containerd.parse_effective(dump, version).cdi_enabled is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(
            "refusal-2.4.2-syntax.txt",
            "/etc/containerd/config.toml, line 2, column 7:"
            " toml: unexpected character U+000A at start of value",
            id="2.4-syntax",
        ),
        pytest.param(
            "refusal-2.4.2-cri.txt",
            "failed to load TOML from /etc/containerd/config.toml:"
            ' invalid disabled plugin URI "cri" expect io.containerd.x.vx',
            id="2.4-content",
        ),
        pytest.param(
            "refusal-1.6.20-syntax.txt",
            "failed to load TOML: /etc/containerd/config.toml: (3, 1): expecting a value",
            id="1.6-syntax",
        ),
    ],
)
def test_parse_refusal(name, expected):
    assert containerd.parse_refusal(recording(f"containerd/{name}")) == expected


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [("Killed\n", "Killed"), ("", "containerd config dump failed silently")],
)
def test_parse_refusal_without_reason(stderr, expected):
    assert containerd.parse_refusal(stderr) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("version = 2\n", [], id="none"),
        pytest.param(
            'imports = ["/etc/containerd/conf.d/*.toml", \'extra.toml\']  # "no.toml"\n',
            ["/etc/containerd/conf.d/*.toml", "/etc/containerd/extra.toml"],
            id="imports",
        ),
    ],
)
def test_mentioned_files(text, expected):
    assert containerd.mentioned_files("/etc/containerd/config.toml", text) == expected


IMAGES = "io.containerd.cri.v1.images"


@pytest.mark.parametrize(
    ("version", "images", "expected"),
    [
        ("2.0.5", {}, True),
        ("2.1.0", {}, False),
        ("2.4.2", {"max_concurrent_downloads": 3, "disable_snapshot_annotations": True}, False),
        ("2.4.2", {"use_local_image_pull": True}, True),
        ("2.4.2", {"discard_unpacked_layers": True}, True),
        ("2.4.2", {"disable_snapshot_annotations": False}, True),
        ("2.4.2", {"max_concurrent_downloads": 10}, True),
        ("2.4.2", {"registry": {"configs": {"nvcr.io": {"auth": {"username": "x"}}}}}, True),
    ],
)
def test_folders_of_registries_in_a_list(version, images, expected):
    found = {"registry": {"config_path": "/a:/b"}, **images}
    dump = {"plugins": {IMAGES: found, containerd.CRI_SECTIONS[0]: {}}}
    registry = containerd.parse_effective(dump, version).registry
    assert registry["reads_lists"] is expected
    assert registry["tls"] == []


def test_registries_in_containerds_own_file():
    registry = {
        "mirrors": {"docker.io": {"endpoint": ["https://me:secret@m.example"]}},
        "configs": {"m.example": {"tls": {"ca_file": "/ca"}}, "x": {"auth": {"password": "y"}}},
    }
    dump = {"plugins": {"io.containerd.grpc.v1.cri": {"registry": registry}}}
    found = containerd.parse_effective(dump, "1.7.24").registry
    assert found == {
        "folders": [],
        "mirrors": ["docker.io"],
        "tls": ["m.example"],
        "reads_lists": True,
    }
