# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.probe.node_files import NodeFiles
from ansible_collections.metal.gpu.plugins.module_utils.read import docker
from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import Flag
from ansible_collections.metal.gpu.plugins.module_utils.read.docker import Effective, Runtime
from ansible_collections.metal.gpu.plugins.module_utils.read.version import release
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant, recording

RECORDED = Path(__file__).parents[4] / "recorded"
OTHERS = yaml.safe_load((RECORDED / "other_dockers.yml").read_text())


@pytest.mark.parametrize(
    ("patterns", "trace"),
    [
        *((docker.ROOTLESS_PATTERNS, OTHERS["rootless"][name]) for name in ("socket", "unit")),
        (docker.ROOTLESS_PATTERNS, OTHERS["rootless"]["socket_without_systemd"]),
        (docker.SNAP_PATTERNS, OTHERS["snap"]["program"]),
        (docker.SNAP_PATTERNS, OTHERS["snap"]["program_elsewhere"]),
    ],
    ids=str,
)
def test_other_dockers_are_found_by_what_they_leave(tmp_path, patterns, trace):
    plant(tmp_path, {trace["path"]: ""})
    files = NodeFiles(tmp_path)
    assert [path for pattern in patterns for path in files.find(pattern)] == [trace["path"]]


@pytest.mark.parametrize(
    ("version", "without", "expected"),
    [
        ("29.8.1", "", True),
        ("29.2.0", "", True),
        ("29.1.5", "", False),
        (None, "", False),
        *(("29.8.1", name, False) for name in ("has_cdi", "has_hook", "has_devices")),
    ],
)
def test_gpus_by_cdi(version, without, expected):
    facts = {name: name != without for name in ("has_cdi", "has_hook", "has_devices")}
    assert docker.gives_gpus_by_cdi(version, **facts) is expected


def test_gpus_are_given_by_cdi_since_the_version_of_the_records():
    rows = yaml.safe_load((RECORDED / "docker_daemon.yml").read_text())["gpus"]["rows"]
    (since,) = [row["since"] for row in rows if row["what"] == "order of the driver nvidia"]
    assert release(since)[:2] == docker.CDI_HOOK_SINCE
    (kind,) = [row["value"] for row in rows if row["what"] == "devices that --gpus asks of CDI"]
    assert kind == docker.GPU_KIND
    needs = yaml.safe_load((RECORDED / "image_needs.yml").read_text())["requirements"]
    assert release(needs["gpus_by_cdi"]["value"]) == docker.CDI_HOOK_SINCE


def test_answer_of_a_users_docker_is_none_of_the_systems():
    option = OTHERS["rootless"]["info"]["option"]
    answer = '{"ServerVersion": "20.10.24", "SecurityOptions": ["name=seccomp,profile=default"%s]}'
    assert docker.parse_info(answer % "") is not None
    assert docker.parse_info(answer % f', "{option}"') is None
    assert docker.is_of_user(answer % f', "{option}"')
    assert not any(docker.is_of_user(text) for text in (answer % "", "", "[]", "{}"))


def test_effective_from_info():
    info = docker.parse_info(recording("docker/info-20.10.24.txt"))
    assert docker.effective_from_info(info) == Effective(
        default_runtime="runc",
        runtimes={
            name: Runtime(type=None, binary="runc")
            for name in ("io.containerd.runc.v2", "io.containerd.runtime.v1.linux", "runc")
        },
        cgroup_driver="cgroupfs",
        cdi_enabled=False,
    )


def test_cdi_is_on_where_directories_are_searched():
    info = {"CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}
    assert docker.effective_from_info(info).cdi_enabled is True


@pytest.mark.parametrize(
    "stdout",
    [
        pytest.param(recording("docker/info-no-engine.txt"), id="form"),
        pytest.param("Cannot connect to the Docker daemon", id="text"),
        pytest.param("[]", id="list"),
        pytest.param("", id="silence"),
    ],
)
def test_no_engine_answers(stdout):
    assert docker.parse_info(stdout) is None


@pytest.mark.parametrize(
    ("document", "version", "expected"),
    [
        pytest.param({}, "20.10.24", Effective("runc", {}, None, False), id="old"),
        pytest.param({}, "29.8.1", Effective("runc", {}, None, True), id="cdi-by-default"),
        pytest.param(
            {
                "default-runtime": "nvidia",
                "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}},
                "exec-opts": ["native.cgroupdriver=systemd"],
                "features": {"cdi": False},
            },
            "29.8.1",
            Effective(
                "nvidia",
                {"nvidia": Runtime(type=None, binary="nvidia-container-runtime")},
                "systemd",
                False,
            ),
            id="nvidia",
        ),
        pytest.param(
            {"runtimes": ["nvidia"], "exec-opts": "x", "features": None},
            "20.10.24",
            Effective("runc", {}, None, False),
            id="nonsense",
        ),
    ],
)
def test_effective_from_file(document, version, expected):
    assert docker.effective_from_file(document, version) == expected


@pytest.mark.parametrize(
    ("document", "flags", "info", "expected"),
    [
        pytest.param({}, (), None, "/var/lib/docker", id="default"),
        pytest.param({"data-root": "/a"}, (), None, "/a", id="file"),
        pytest.param({"data-root": "/a"}, (), {"DockerRootDir": "/b"}, "/b", id="asked"),
        pytest.param({}, (Flag("--data-root", "/c", "f", None, True),), None, "/c", id="flag"),
        pytest.param({"data-root": 1}, (), None, "/var/lib/docker", id="nonsense"),
    ],
)
def test_data_root(document, flags, info, expected):
    assert docker.data_root(document, flags, info) == expected


@pytest.mark.parametrize(
    ("document", "info", "expected"),
    [
        pytest.param({"storage-driver": "zfs"}, {"Driver": "overlay2"}, "overlay2", id="asked"),
        pytest.param({"storage-driver": "zfs"}, None, "zfs", id="file"),
        pytest.param({"storage-driver": 1}, None, None, id="nonsense"),
        pytest.param({}, None, None, id="unknown"),
    ],
)
def test_storage_driver(document, info, expected):
    assert docker.storage_driver(document, info) == expected


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        pytest.param(None, None, id="no answer"),
        pytest.param({"RegistryConfig": None}, None, id="unknown"),
        pytest.param({"RegistryConfig": {"Mirrors": []}}, [], id="none"),
        pytest.param(
            {"RegistryConfig": {"Mirrors": ["https://a.example/"]}}, ["https://a.example"], id="one"
        ),
    ],
)
def test_mirrors(info, expected):
    assert docker.mirrors(info) == expected


@pytest.mark.parametrize(
    ("packages", "units", "expected"),
    [
        ({"nvidia-docker": "1.0.1-1"}, {}, True),
        ({"nvidia-docker": "2.0"}, {}, False),
        ({}, {"nvidia-docker.service": {"LoadState": "loaded"}}, True),
        ({}, {"nvidia-docker.service": {"LoadState": "not-found"}}, False),
    ],
)
def test_has_v1(packages, units, expected):
    assert docker.has_v1(packages, units) is expected


@pytest.mark.parametrize(
    ("stdout", "expected"),
    [("docker:x:103:alice,bob\n", ["alice", "bob"]), ("docker:x:103:\n", []), ("", [])],
)
def test_parse_group(stdout, expected):
    assert docker.parse_group(stdout) == expected
