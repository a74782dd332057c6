# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe import services
from ansible_collections.metal.gpu.plugins.module_utils.probe.node_files import NodeFiles
from ansible_collections.metal.gpu.plugins.module_utils.probe.registry import PROBES
from ansible_collections.metal.gpu.plugins.module_utils.read import systemd
from ansible_collections.metal.gpu.tests.unit.support.recordings import (
    parse_scene,
    plant_services,
    recording,
)

KUBELET, CONTAINERD, DOCKER = "kubelet.service", "containerd.service", "docker.service"
KINDS = {unit: kind for probe in PROBES.values() for unit, kind in probe.services.items()}
RUNNING = systemd.parse_show(recording("systemd/show-services-running.txt"))
STOPPED = systemd.parse_show(recording("systemd/show-services-stopped.txt"))
SCENE = parse_scene(recording("nodes/services.txt"))
KUBELET_FLAGS = [
    ("--hostname-override", "gpu-1.example"),
    ("--bootstrap-kubeconfig", "/etc/kubernetes/bootstrap-kubelet.conf"),
    ("--kubeconfig", "/etc/kubernetes/kubelet.conf"),
    ("--config", "/var/lib/kubelet/config.yaml"),
    ("--container-runtime-endpoint", "unix:///run/containerd/containerd.sock"),
    ("--pod-infra-container-image", "***"),
    ("--node-labels", "***"),
    ("--healthz-bind-address", "::1"),
]
DOCKER_FLAGS = [
    ("-H", "fd://"),
    ("--default-runtime", "nvidia"),
    ("--log-level", "***"),
    ("--config-file", "/etc/docker/site.json"),
]


@pytest.fixture
def read(tmp_path):
    """Return what is read of a unit on the planted node."""

    def run(unit, properties, *, without=(), **changed):
        plant_services(
            tmp_path,
            {path: text for path, text in {**SCENE, **changed}.items() if path not in without},
        )
        return services.read_service(tmp_path, NodeFiles(tmp_path), unit, KINDS[unit], properties)

    return run


def pairs(flags):
    return [(flag.name, flag.value) for flag in flags]


@pytest.mark.parametrize("unit", [KUBELET, DOCKER])
@pytest.mark.parametrize(
    ("show", "source"), [(RUNNING, "process"), (STOPPED, "unit")], ids=["running", "stopped"]
)
def test_flags_in_force(read, unit, show, source):
    """These differ from the files: a specifier, and a shell between systemd and the program."""
    found = read(unit, show[unit])
    assert pairs(found.in_force) == (KUBELET_FLAGS if unit == KUBELET else DOCKER_FLAGS)
    assert found.source == source


@pytest.mark.parametrize("show", [RUNNING, STOPPED], ids=["running", "stopped"])
def test_flags_are_where_a_person_wrote_them(read, show):
    found = read(DOCKER, show[DOCKER])
    unit = "/etc/systemd/system/docker.service"
    assert [(flag.name, flag.file, flag.variable) for flag in found.flags] == [
        ("-H", unit, None),
        ("--default-runtime", unit, "DOCKER_OPTS"),
        ("--log-level", unit, "DOCKER_OPTS"),
        ("--config-file", unit, None),
    ]


def test_a_specifier_stays_in_the_place_to_edit(read):
    found = read(KUBELET, RUNNING[KUBELET])
    assert pairs(found.flags)[0] == ("--hostname-override", "%H")
    assert len(found.flags) == len(KUBELET_FLAGS)


@pytest.mark.parametrize(
    ("unit", "show", "path"),
    [
        pytest.param(CONTAINERD, RUNNING, "/usr/local/bin/containerd", id="running"),
        pytest.param(KUBELET, STOPPED, "/usr/local/bin/kubelet", id="stopped"),
        pytest.param(DOCKER, RUNNING, "/usr/local/bin/dockerd", id="shell, running"),
        pytest.param(DOCKER, STOPPED, "/usr/local/bin/dockerd", id="shell, stopped"),
        pytest.param(KUBELET, {KUBELET: {}}, None, id="systemd does not know the unit"),
    ],
)
def test_the_program_is_the_one_of_the_unit(read, unit, show, path):
    assert read(unit, show[unit]).path == path


def test_a_program_that_is_gone_is_nowhere(read):
    assert read(KUBELET, STOPPED[KUBELET], without=["/usr/local/bin/kubelet"]).path is None


@pytest.mark.parametrize("is_there", [True, False])
def test_a_program_that_was_replaced_since(read, tmp_path, is_there):
    """Which the kernel tells, as after an upgrade; the new file has the path."""
    properties = RUNNING[CONTAINERD]
    read(CONTAINERD, properties)
    (tmp_path / "proc/172/exe").unlink()
    (tmp_path / "proc/172/exe").symlink_to("/usr/local/bin/containerd (deleted)")
    if not is_there:
        (tmp_path / "usr/local/bin/containerd").unlink()
    found = services.read_service(
        tmp_path, NodeFiles(tmp_path), CONTAINERD, KINDS[CONTAINERD], properties
    )
    assert found.path == ("/usr/local/bin/containerd" if is_there else None)
    assert found.source == "process"


def test_another_binary_of_the_kubelet_counts(read):
    """Its name may have a version in it; a shim in the same control group is no containerd."""
    words = "/opt/k8s/kubelet-v1.37.1\n--hostname-override=a\n"
    found = read(
        KUBELET,
        RUNNING[KUBELET],
        **{"/proc/206/cmdline": words, "/opt/k8s/kubelet-v1.37.1": "a program"},
    )
    assert (found.path, found.source) == ("/opt/k8s/kubelet-v1.37.1", "process")
    assert pairs(found.in_force) == [("--hostname-override", "a")]


@pytest.mark.parametrize(
    "hierarchy", ["sys/fs/cgroup", "sys/fs/cgroup/systemd"], ids=["cgroup 2", "cgroup 1"]
)
def test_a_wrapper_has_started_it(tmp_path, hierarchy):
    """Also where the process is in a group of its own below the one of the service."""
    plant_services(
        tmp_path,
        {
            "/proc/7/cmdline": "/bin/bash\n/opt/start-containerd\n",
            "/proc/8/cmdline": "/usr/bin/containerd-shim-runc-v2\n-id\na\n",
            "/proc/9/cmdline": "/opt/bin/containerd\n--config=/opt/c.toml\n",
            "/opt/bin/containerd": "a program",
            f"/{hierarchy}/system.slice/containerd.service/cgroup.procs": "7\n8\n",
            f"/{hierarchy}/system.slice/containerd.service/supervisor/cgroup.procs": "9\n",
        },
    )
    properties = {"MainPID": "7", "ControlGroup": "/system.slice/containerd.service"}
    found = services.read_service(
        tmp_path, NodeFiles(tmp_path), CONTAINERD, KINDS[CONTAINERD], properties
    )
    assert found.path == "/opt/bin/containerd"
    assert pairs(found.in_force) == [("--config", "/opt/c.toml")]
    # No file of the unit has it.
    assert [(flag.name, flag.file, flag.effective) for flag in found.flags] == [
        ("--config", None, True)
    ]


def test_a_process_that_ends_meanwhile_is_none(tmp_path):
    (tmp_path / "proc/7").mkdir(parents=True)
    properties = {"MainPID": "7", "ControlGroup": "/system.slice/kubelet.service"}
    assert services.find_process(tmp_path, properties, "kubelet") is None


def test_a_drop_in_without_its_unit_starts_nothing(tmp_path):
    drop_in = "/etc/systemd/system/docker.service.d/http-proxy.conf"
    plant_services(tmp_path, {drop_in: "[Service]\nEnvironment=HTTP_PROXY=http://proxy\n"})
    found = services.read_service(tmp_path, NodeFiles(tmp_path), DOCKER, KINDS[DOCKER], {})
    assert (found.starter, found.starter_file) == (None, None)


def test_without_systemd_the_files_tell(read):
    found = read(KUBELET, {})
    assert pairs(found.in_force)[0] == ("--hostname-override", "%H")
    assert found.source == "unit"


def test_nothing_of_a_service_that_is_not_there(tmp_path):
    found = services.read_service(
        tmp_path, NodeFiles(tmp_path), DOCKER, KINDS[DOCKER], {"MainPID": "0"}
    )
    assert found == services.Service("dockerd", None, None, None, None, (), ())


def test_the_unit_of_another_user_cannot_be_looked_into(tmp_path):
    """Without root, only the command line of a process can be read."""
    plant_services(tmp_path, {"/proc/7/cmdline": "/usr/bin/kubelet\n--v=2\n"})
    os.remove(tmp_path / "proc/7/exe")
    control_group = "/system.slice/kubelet.service"
    folder = tmp_path / f"sys/fs/cgroup{control_group}"
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").write_text("7\n")
    properties = {"MainPID": "7", "ControlGroup": control_group}
    found = services.find_process(tmp_path, properties, "kubelet")
    assert found == services.Process(None, ("/usr/bin/kubelet", "--v=2"), "7")
