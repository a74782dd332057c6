# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that other tools write, on nodes of these tools: which file the role edits, or why not.

Each file is planted with what the tool leaves beside it. The plan is carried out, made again, and
taken back. containerd and Docker are answered for: their files are merged as containerd 2 does it.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.mappings import texts
from ansible_collections.metal.gpu.plugins.module_utils.read import containerd
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import (
    register_runtime as docker,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import edit as documents
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    DOCKER,
    DONE,
    codes,
    merge,
    plan,
)
from ansible_collections.metal.gpu.tests.unit.support.carry_out import (
    carry_out_runtime,
    on_disk,
)
from ansible_collections.metal.gpu.tests.unit.support.config_files import FOLDER
from ansible_collections.metal.gpu.tests.unit.support.observing import (
    IN_THE_FUTURE,
    active_since,
)
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant

Observe = Callable[[Programs], dict[str, Any]]

CONFIG = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/99-metal-gpu.toml"
DAEMON_JSON = "/etc/docker/daemon.json"
TOOLKIT = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
KUBEADM = {"/var/lib/kubelet/kubeadm-flags.env": 'KUBELET_KUBEADM_ARGS=""\n'}
KUBESPRAY = {**KUBEADM, "/etc/containerd/cri-base.json": "{}"}
EKS = {"/etc/eks/nodeadm.yaml": "", "/etc/containerd/base-runtime-spec.json": "{}"}
OPERATOR = {
    TOOLKIT: "",
    "/etc/containerd/conf.d/99-nvidia.toml": f"""\
version = 3
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
BinaryName = "{TOOLKIT}"
""",
}


class Place(Programs):
    """Programs, one of which is where Kubespray puts it."""

    def find(self, name: str) -> str | None:
        path = super().find(name)
        return path and path.replace("/usr/bin/", "/usr/local/bin/")


class Case(NamedTuple):
    """A file of a tool, and what the plans make of its node."""

    file: str
    version: str
    beside: dict[str, str]
    tools: list[str]
    target: str | None  # None: the role has nothing to change
    notices: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    of_preflight: tuple[str, ...] = ()
    programs: type[Programs] = Programs


CONTAINERD = [
    pytest.param(Case("04-kubeadm-1.7.toml", "1.7.24", KUBEADM, ["kubeadm"], CONFIG), id="kubeadm"),
    pytest.param(
        Case("11-image-builder.toml", "2.4.2", KUBEADM, ["kubeadm"], DROP_IN),
        id="kubeadm, with imports",
    ),
    pytest.param(
        Case("11-image-builder.toml", "1.7.24", KUBEADM, ["kubeadm"], CONFIG),
        id="kubeadm, with imports that would replace",
    ),
    pytest.param(
        Case(
            *("05-kubespray-v3.toml", "2.4.2", KUBESPRAY, ["kubeadm", "Kubespray"], CONFIG),
            notices=("KUBESPRAY_OVERWRITES",),
            programs=Place,
        ),
        id="Kubespray",
    ),
    pytest.param(
        Case(
            *("17-deepops.toml", "2.4.2", KUBESPRAY, ["kubeadm", "Kubespray"], DROP_IN),
            programs=Place,
        ),
        id="DeepOps, without the GPU Operator",
    ),
    pytest.param(
        Case(
            *("17-deepops.toml", "2.4.2", {**KUBESPRAY, **OPERATOR}),
            ["kubeadm", "Kubespray", "the GPU Operator"],
            DROP_IN,
            refusals=("OPERATOR_TOOLKIT", "CONTAINERD_RUNTIME_CONTESTED"),
            programs=Place,
        ),
        id="DeepOps",
    ),
    pytest.param(
        Case("07-eks-v2.toml", "1.7.24", EKS, ["EKS"], None, of_preflight=("CLOUD_IMAGE",)),
        id="EKS, version 2",
    ),
    pytest.param(
        Case("08-eks-v3.toml", "2.4.2", EKS, ["EKS"], None, of_preflight=("CLOUD_IMAGE",)),
        id="EKS, version 3",
    ),
]


def test_every_file_that_is_named_after_a_tool_is_here() -> None:
    names = ("kubeadm", "kubespray", "eks", "deepops", "image-builder")
    collected = {
        file.name for file in (FOLDER / "containerd").iterdir() if any(map(file.name.count, names))
    }
    assert collected == {row.values[0].file for row in CONTAINERD}


def merged(root: Path) -> dict[str, Any]:
    """Return the settings of the main file with those of the files that it imports."""
    content: dict[str, Any] = tomllib.loads(on_disk(root, CONFIG).read_text())
    for pattern in texts(content, "imports"):
        for file in sorted(root.glob(containerd.absolute(CONFIG, pattern).lstrip("/"))):
            content = merge(content, tomllib.loads(file.read_text()))
    return content


def with_containerd(root: Path, observe: Observe, case: Case) -> dict[str, Any]:
    """Return a node on which nothing else is left to do. containerd has read its files."""
    programs = case.programs(
        {
            "systemctl show": (0, active_since("containerd", IN_THE_FUTURE), ""),
            "containerd --version": (0, f"containerd github.com/x {case.version} abc\n", ""),
            "containerd --config": (0, documents.render("", "toml", merged(root)), ""),
        }
    )
    return on_top_of(DONE, observe(programs), "containerd")


def on_top_of(base: dict[str, Any], seen: dict[str, Any], engine: str) -> dict[str, Any]:
    return {
        **base,
        "tools": seen["tools"],
        "engines": {**base["engines"], engine: seen["engines"][engine]},
        "ours": {**base["ours"], "edits": seen["ours"]["edits"]},
    }


def files(root: Path) -> dict[str, bytes]:
    """Return the files below /etc, which a removal must give back."""
    found = (one for one in (root / "etc").rglob("*") if one.is_file())
    return {str(one.relative_to(root)): one.read_bytes() for one in found}


def slugs(planned: dict[str, Any]) -> list[str]:
    return [step["slug"] for step in planned["steps"]]


@pytest.mark.parametrize("case", CONTAINERD)
def test_containerd_of_another_tool(observe: Observe, tmp_path: Path, case: Case) -> None:
    plant(tmp_path, case.beside)
    on_disk(tmp_path, CONFIG).parent.mkdir(parents=True, exist_ok=True)
    on_disk(tmp_path, CONFIG).write_bytes((FOLDER / "containerd" / case.file).read_bytes())
    before = files(tmp_path)

    node = with_containerd(tmp_path, observe, case)
    assert node["tools"] == case.tools
    assert codes(plan("preflight", node)) == [*case.of_preflight]
    # It keeps a containerd that it did not install.
    assert (slugs(plan("containerd", node)), codes(plan("containerd", node))) == ([], [])
    made = plan("nvidia_container_runtime", node)
    assert codes(made) == [*case.refusals]
    assert [one["code"] for one in made["notices"]] == [*case.notices]
    assert case.target is None or made["data"]["config"]["path"] == case.target
    if case.refusals:
        assert made["steps"] == []
        return
    assert slugs(made) == (["register", "restart"] if case.target else [])

    carry_out_runtime(tmp_path, made)
    written = files(tmp_path)
    changed = {f"/{path}" for path in written if written[path] != before.get(path)}
    assert changed == ({case.target} if case.target else set())

    again = plan("nvidia_container_runtime", with_containerd(tmp_path, observe, case))
    assert (slugs(again), codes(again)) == ([], [])
    assert [one["code"] for one in again["notices"]] == [*case.notices]

    node = with_containerd(tmp_path, observe, case)
    back = plan("nvidia_container_runtime", node, state="absent")
    assert codes(back) == []
    assert ("unregister" in slugs(back)) is (case.target is not None)
    carry_out_runtime(tmp_path, back)
    assert files(tmp_path) == before


CRUN = """\
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "crun"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun.options]
BinaryName = "/usr/local/bin/crun"
"""
# By 1.7: files of newer versions, and settings with which its CRI plugin does not load.
NOT_READ = ("05-k", "06-v", "08-e", "10-v", "12-l", "15-d", "16-s", "17-d")
FILES = {"crun": CRUN, **{one.name: one.read_text() for one in (FOLDER / "containerd").iterdir()}}


@pytest.mark.parametrize(
    ("name", "version"),
    [
        (name, version)
        for name in sorted(FILES)
        for version in ("1.7.24", "2.4.2")
        # 1.7 ignores the tables of this file, and the answers of this test have them.
        if (name, version) != ("09-aks.toml", "1.7.24")
    ],
)
@pytest.mark.parametrize("kubelet", ["1.30.14", "1.37.1"])
def test_edit_of_containerd_empties_its_plan(
    observe: Observe, tmp_path: Path, name: str, version: str, kubelet: str
) -> None:
    """With nvidia as the default runtime, and back: a plan is a refusal, or its edit empties it."""
    plant(tmp_path, {**KUBESPRAY, **EKS, CONFIG: FILES[name]})

    def planned(*, default: bool) -> Any:
        node = with_containerd(tmp_path, observe, Case("", version, {}, [], None))
        node["kubelet"] = {**node["kubelet"], "version": kubelet}
        desired = {"default": default, "cri_is_planned": True}
        return plan("nvidia_container_runtime", node, **desired)

    for default in (True, False):
        made = planned(default=default)
        if not made["refusals"]:
            carry_out_runtime(tmp_path, made)
            made = planned(default=default)
        assert made["steps"] == []
        refused = NOT_READ if version.startswith("1.") else ("16-s",)  # it has no table of CRI
        assert bool(made["refusals"]) is name.startswith(refused), codes(made)


def with_docker(
    root: Path, observe: Observe, version: str, in_force: dict[str, Any]
) -> dict[str, Any]:
    """Return a node with a Docker that uses these settings."""
    has_cdi = version.startswith("29.") or in_force.get("features", {}).get("cdi")
    info = {
        "ServerVersion": version,
        "Runtimes": {"runc": {"path": "runc"}, **in_force.get("runtimes", {})},
        "DefaultRuntime": in_force.get("default-runtime", "runc"),
        "CgroupDriver": "systemd",
        "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"] if has_cdi else [],
        "LiveRestoreEnabled": False,
        "DockerRootDir": "/var/lib/docker",
    }
    programs = Programs(
        {
            "systemctl show": (0, active_since("docker", IN_THE_FUTURE), ""),
            "dockerd --version": (0, f"Docker version {version}, build 1234567\n", ""),
            "docker info": (0, json.dumps(info) + "\n", ""),
            "docker ps": (0, "", ""),
            "getent": (0, "docker:x:998:\n", ""),
        }
    )
    return on_top_of(DOCKER, observe(programs), "docker")


def of_docker(planned: dict[str, Any]) -> list[str]:
    """Return the steps that are about Docker: the toolkit is not there yet."""
    return [slug for slug in slugs(planned) if slug in {step.slug for step in docker.STEPS}]


DEEPOPS = json.loads((FOLDER / "docker" / "12-deepops.json").read_text())


@pytest.mark.parametrize(
    ("version", "in_force", "keys", "steps"),
    [
        pytest.param("29.8.1", DEEPOPS, {}, [], id="its runtime is ours"),
        pytest.param("29.8.1", {}, {}, ["reload"], id="Docker has not read it"),
        pytest.param(
            *("26.1.5", DEEPOPS, {"features": {"cdi": True}}, ["register", "reload"]), id="CDI"
        ),
    ],
)
def test_docker_of_deepops(
    observe: Observe,
    tmp_path: Path,
    version: str,
    in_force: dict[str, Any],
    keys: dict[str, Any],
    steps: list[str],
) -> None:
    """Only what the file lacks is added. The runtime of DeepOps stays when everything goes."""
    plant(tmp_path, {DAEMON_JSON: ""})
    text = (FOLDER / "docker" / "12-deepops.json").read_bytes()
    on_disk(tmp_path, DAEMON_JSON).write_bytes(text)
    node = with_docker(tmp_path, observe, version, in_force)
    assert codes(plan("docker_ce", node)) == []
    made = plan("nvidia_container_runtime", node, engine="docker", default=None)
    assert (codes(made), of_docker(made)) == ([], steps)
    assert made["data"]["config"]["merge"] == keys

    carry_out_runtime(tmp_path, made)
    now = json.loads(on_disk(tmp_path, DAEMON_JSON).read_text())
    assert now == {**DEEPOPS, **keys}
    node = with_docker(tmp_path, observe, version, now)
    again = plan("nvidia_container_runtime", node, engine="docker", default=None)
    assert (codes(again), of_docker(again)) == ([], [])

    back = plan("nvidia_container_runtime", node, engine="docker", state="absent")
    assert (codes(back), "unregister_docker" in slugs(back)) == ([], bool(keys))
    carry_out_runtime(tmp_path, back)
    assert on_disk(tmp_path, DAEMON_JSON).read_bytes() == text


@pytest.mark.parametrize("name", sorted(one.name for one in (FOLDER / "docker").iterdir()))
@pytest.mark.parametrize("version", ["26.1.5", "29.8.1"])
def test_edit_of_docker_empties_its_plan(
    observe: Observe, tmp_path: Path, name: str, version: str
) -> None:
    plant(tmp_path, {DAEMON_JSON: ""})
    on_disk(tmp_path, DAEMON_JSON).write_bytes((FOLDER / "docker" / name).read_bytes())
    in_force: dict[str, Any] = {}
    for default in (None, False):
        for _run in range(2):
            node = with_docker(tmp_path, observe, version, in_force)
            made = plan("nvidia_container_runtime", node, engine="docker", default=default)
            assert codes(made) == []
            carry_out_runtime(tmp_path, made)
            text = on_disk(tmp_path, DAEMON_JSON).read_text(encoding="utf-8-sig")
            in_force = json.loads(text or "{}")
        assert of_docker(made) == []
