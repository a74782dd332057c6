# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The containerd and the kubelet of k3s, RKE2 and k0s, on planted nodes."""

from __future__ import annotations

import os
import shutil
import time

import pytest

from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    VIRGIN as NODE,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    codes,
    load,
    merge,
    plan,
)
from ansible_collections.metal.gpu.tests.unit.support.distributions import (
    HOME,
    K0S,
    K3S,
    RKE2,
    install_toolkit,
    plant_node,
    programs,
    rename_unit,
    use_engine,
)
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant, recording

VIRGIN = recording("containerd/dump-2.2.0-k3s-virgin.toml")
NVIDIA = recording("containerd/dump-2.2.0-k3s-nvidia.toml")
SOCKET = "/run/k3s/containerd/containerd.sock"
DROP_IN = "/etc/k0s/containerd.d/99-metal-gpu.toml"


def test_k3s_contains_a_kubelet_and_a_containerd(observe, tmp_path):
    plant_node(tmp_path, K3S)
    asked = programs(K3S, VIRGIN)
    node = observe(asked)
    kubelet, engine = node["kubelet"], node["engines"]["containerd"]
    assert kubelet["distribution"] == {"name": "k3s", "unit": "k3s-agent.service"}
    assert (kubelet["installed"], kubelet["running"]) == (True, True)
    assert (kubelet["version"], kubelet["path"]) == ("1.35.2", None)
    assert kubelet["endpoint"] == f"unix://{SOCKET}"
    assert kubelet["health_url"] == "http://127.0.0.1:10248/healthz"
    assert kubelet["own_name"] is None  # its flags are inside k3s
    assert kubelet["flags_source"] is None
    assert engine["path"] == "/var/lib/rancher/k3s/data/0a1b/bin/containerd"
    assert (engine["version"], engine["running"], engine["socket"]) == ("2.2.0", True, SOCKET)
    assert engine["config"]["path"] == K3S.config
    assert [*engine["runtimes"]] == ["runc"]
    assert engine["changed_since_start"] == []
    assert engine["home"] == HOME


@pytest.mark.parametrize("scene", [K3S, RKE2, K0S], ids=lambda one: one.name)
def test_no_other_containerd_is_asked(observe, tmp_path, scene):
    plant_node(tmp_path, scene)
    asked = programs(scene, VIRGIN)
    observe(asked)
    started = {path for path in asked.started if path.endswith("/containerd")}
    assert len(started) == 1
    assert "/usr/bin/containerd" not in started


def test_secrets_of_a_distribution_stay_on_the_node(observe, tmp_path):
    for scene in (K3S, RKE2, K0S):
        plant_node(tmp_path / scene.name, scene)
        from ansible_collections.metal.gpu.plugins.modules import node_info

        asked = programs(scene, VIRGIN)
        node = node_info.Node(tmp_path / scene.name, asked.run, asked.find)
        assert "CANARY" not in repr(node_info.run(node, [], []))


def test_the_kubelet_of_rke2_is_a_process(observe, tmp_path):
    plant_node(tmp_path, RKE2)
    node = observe(programs(RKE2, VIRGIN))
    kubelet = node["kubelet"]
    assert kubelet["distribution"] == {"name": "RKE2", "unit": "rke2-server.service"}
    assert kubelet["path"] == "/var/lib/rancher/rke2/data/v1/bin/kubelet"
    assert (kubelet["endpoint"], kubelet["own_name"]) == (f"unix://{SOCKET}", "gpu-1")
    assert kubelet["flags_source"] == "process"
    assert node["cgroup"]["driver"] == "systemd"
    assert node["engines"]["containerd"]["socket"] == SOCKET


def test_k0s_watches_its_drop_ins(observe, tmp_path):
    plant_node(tmp_path, K0S)
    node = observe(programs(K0S, VIRGIN))
    kubelet, engine = node["kubelet"], node["engines"]["containerd"]
    assert (kubelet["version"], kubelet["endpoint"]) == (
        "1.36.1",
        "unix:///run/k0s/containerd.sock",
    )
    assert kubelet["config"]["path"] == "/var/lib/k0s/kubelet-config.yaml"
    assert engine["socket"] == "/run/k0s/containerd.sock"  # `config dump` has another one
    assert engine["config"]["imports"] == ["/etc/k0s/containerd.d/*.toml"]
    assert (engine["home"]["watched"], engine["home"]["is_managed"]) == (
        "/etc/k0s/containerd.d",
        True,
    )
    assert engine["home"]["detects_runtimes"] is False


def test_the_file_of_k0s_can_belong_to_the_admin(observe, tmp_path):
    plant_node(tmp_path, K0S)
    plant(tmp_path, {K0S.config: "version = 3\n"})
    assert observe(programs(K0S, VIRGIN))["engines"]["containerd"]["home"]["is_managed"] is False


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("version = 2\n", True, id="version 2"),
        pytest.param('[plugins."io.containerd.grpc.v1.cri"]\n', True, id="table of version 2"),
        pytest.param("[plugins.cri]\n", True, id="table of version 1"),
        pytest.param("version = 3\n", False, id="version 3"),
        pytest.param("[debug]\n", False, id="no version"),
    ],
)
def test_drop_ins_with_which_k0s_does_not_start(observe, tmp_path, text, expected):
    plant_node(tmp_path, K0S)
    path = "/etc/k0s/containerd.d/nvidia.toml"
    plant(tmp_path, {path: text})
    engine = observe(programs(K0S, VIRGIN))["engines"]["containerd"]
    assert engine["home"]["former_drop_ins"] == ([path] if expected else [])


def test_the_start_of_the_process_counts(observe, tmp_path):
    """k0s restarts its containerd, and its unit goes on."""
    plant_node(tmp_path, K0S)
    plant(tmp_path, {DROP_IN: "version = 3\n"})
    engine = observe(programs(K0S, VIRGIN))["engines"]["containerd"]
    assert engine["changed_since_start"] == [DROP_IN]
    before = time.time() - 7200
    os.utime(tmp_path / DROP_IN[1:], (before, before))
    engine = observe(programs(K0S, VIRGIN))["engines"]["containerd"]
    assert engine["changed_since_start"] == []


@pytest.mark.parametrize(("started_s_ago", "expected"), [(3600, False), (-60, True)])
def test_k3s_started_before_the_toolkit_was_there(observe, tmp_path, started_s_ago, expected):
    plant_node(tmp_path, K3S, started_s_ago=started_s_ago)
    install_toolkit(tmp_path)
    home = observe(programs(K3S, VIRGIN))["engines"]["containerd"]["home"]
    assert home["started_after_runtime"] is expected


@pytest.mark.parametrize(
    ("path", "expected"), [("/usr/local/bin:/usr/bin", True), ("/opt/bin:/bin", False)]
)
def test_k3s_looks_in_its_path(observe, tmp_path, path, expected):
    plant_node(tmp_path, K3S, path=path)
    home = observe(programs(K3S, VIRGIN))["engines"]["containerd"]["home"]
    assert home["runtime_in_path"] is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('{{ template "base" . }}\n[debug]\n', True, id="extends"),
        pytest.param('#{{ template "base" . }}\n', True, id="carried out behind a comment"),
        pytest.param('{{/* template "base" */}}\n', False, id="comment of the template"),
        pytest.param("# no nvidia-container-runtime here\n", False, id="comment"),
        pytest.param("version = 3\n[plugins]\n", False, id="replaces"),
        pytest.param("{{range $k, $v := .ExtraRuntimes}}{{end}}", True, id="lists"),
    ],
)
def test_a_template_of_an_admin(observe, tmp_path, text, expected):
    plant_node(tmp_path, K3S)
    template = K3S.config.replace("config.toml", "config-v3.toml.tmpl")
    plant(tmp_path, {template: text, K3S.config.replace("config.toml", "config.toml.tmpl"): "x"})
    home = observe(programs(K3S, VIRGIN))["engines"]["containerd"]["home"]
    assert (home["template"], home["template_lists_runtimes"]) == (template, expected)


def test_data_elsewhere(observe, tmp_path):
    """Only the process shows --data-dir."""
    plant_node(tmp_path, K3S)
    config = "/persist/k3s/agent/etc/containerd/config.toml"
    (tmp_path / "proc/701/cmdline").write_bytes(f"containerd\0-c\0{config}\0".encode())
    plant(tmp_path, {config: "version = 3\n"})
    scene = K3S._replace(config=config)
    assert observe(programs(scene, NVIDIA))["engines"]["containerd"]["config"]["path"] == config


def test_a_distribution_that_does_not_run(observe, tmp_path):
    plant_node(tmp_path, K3S)
    (tmp_path / "sys/fs/cgroup/system.slice/k3s-agent.service/cgroup.procs").write_text("")
    node = observe(programs(K3S, VIRGIN, state="inactive"))
    engine = node["engines"]["containerd"]
    assert (engine["running"], node["kubelet"]["running"]) == (False, False)
    assert engine["path"] is None  # data/current is not there, and /usr/bin/containerd is another


@pytest.mark.parametrize("scene", [K3S, RKE2, K0S], ids=lambda one: one.name)
def test_a_distribution_that_never_started(observe, tmp_path, scene):
    """Its unit and its program are there, and nothing that its first start writes."""
    plant_node(tmp_path, scene)
    for folder in ("var", "proc", "sys/fs/cgroup", "etc/k0s"):
        shutil.rmtree(tmp_path / folder, ignore_errors=True)
    asked = programs(scene, VIRGIN, state="inactive")
    found = observe(asked)
    node = merged(found)
    engine = node["engines"]["containerd"]
    assert (engine["installed"], engine["running"], engine["path"]) == (False, False, None)
    assert (engine["config"]["path"], engine["config"]["exists"]) == (scene.config, False)
    assert not any("config dump" in line for line in asked.asked)
    for role in ("containerd", "nvidia_container_runtime"):
        assert codes(plan(role, node)) == ["DISTRIBUTION_STOPPED"]


def test_k3s_that_runs_without_its_file(observe, tmp_path):
    plant_node(tmp_path, K3S)
    (tmp_path / K3S.config[1:]).unlink()
    asked = programs(K3S, VIRGIN)
    found = observe(asked)
    engine = found["engines"]["containerd"]
    assert (engine["running"], engine["version"]) == (True, "2.2.0")
    assert (engine["config"]["exists"], engine["runtimes"]) == (False, {})
    assert not any("config dump" in line for line in asked.asked)
    node = merge(NODE, {name: found[name] for name in ("kubelet", "engines")})
    assert codes(plan("nvidia_container_runtime", node, restart_ok=True)) == [
        "RUNTIME_NOT_DETECTED"
    ]


def merged(found):
    """Return a node of the plans' tests with what was observed."""
    return merge(NODE, {name: found[name] for name in ("kubelet", "engines")})


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        pytest.param("unix:///run/k3s/cri-dockerd/cri-dockerd.sock", [], id="--docker"),
        pytest.param("unix:///run/cri-dockerd.sock", [], id="cri-dockerd of the host"),
        pytest.param("unix:///run/crio/crio.sock", [], id="CRI-O"),
        pytest.param(
            "unix:///run/containerd/containerd.sock", ["ENGINE_UNSUPPORTED"], id="containerd"
        ),
        pytest.param(
            "unix:///run/k3s/containerd/containerd.sock", ["DISTRIBUTION_STOPPED"], id="own"
        ),
    ],
)
@pytest.mark.parametrize("scene", [K3S, RKE2], ids=lambda one: one.name)
def test_engine_in_place_of_its_own(observe, tmp_path, scene, endpoint, expected):
    """Its kubelet is inside the process, so the file for crictl is the only sign."""
    plant_node(tmp_path, scene)
    use_engine(tmp_path, scene, endpoint)
    found = observe(programs(scene, VIRGIN))
    assert found["kubelet"]["endpoint"] == endpoint
    assert found["engines"]["containerd"]["running"] is False
    assert codes(plan("preflight", merged(found))) == expected


def test_its_own_cri_dockerd_is_not_installed_again(observe, tmp_path):
    plant_node(tmp_path, K3S)
    use_engine(tmp_path, K3S, "unix:///run/k3s/cri-dockerd/cri-dockerd.sock")
    docker = {"installed": True, "running": True, "version": "29.8.0"}
    node = merge(merged(observe(programs(K3S, VIRGIN))), {"engines": {"docker": docker}})
    slugs = {step["slug"] for step in plan("docker_ce", node)["steps"]}
    assert not slugs & {"cri_dockerd", "hold_cri_dockerd", "start_cri_dockerd"}
    other = merge(node, {"kubelet": {"endpoint": "unix:///run/cri-dockerd.sock"}})
    slugs = {step["slug"] for step in plan("docker_ce", other)["steps"]}
    assert "start_cri_dockerd" in slugs


def test_its_own_containerd_counts_while_it_runs(observe, tmp_path):
    plant_node(tmp_path, K3S)
    path = K3S.config.replace("containerd/config.toml", "crictl.yaml")
    plant(tmp_path, {path: "runtime-endpoint: unix:///run/crio/crio.sock\n"})
    assert observe(programs(K3S, VIRGIN))["kubelet"]["endpoint"] == f"unix://{SOCKET}"


@pytest.mark.parametrize("unit", ["k3s-gpu.service", "k3s-agent-2.service"])
def test_unit_with_another_name(observe, tmp_path, unit):
    plant_node(tmp_path, K3S)
    scene = rename_unit(tmp_path, K3S, unit)
    node = observe(programs(scene, VIRGIN))
    assert node["kubelet"]["distribution"] == {"name": "k3s", "unit": unit}
    assert (node["kubelet"]["version"], node["kubelet"]["running"]) == ("1.35.2", True)
    engine = node["engines"]["containerd"]
    assert (engine["home"]["unit"], engine["running"]) == (unit, True)
    (refusal,) = plan("nvidia_container_runtime", merged(node))["refusals"]
    assert unit in refusal["message"]


@pytest.mark.parametrize("unit", ["k3s-backup@.service", "k3s-a b.service"])
def test_a_file_that_is_no_unit_is_not_asked_for(observe, tmp_path, unit):
    """systemctl rejects a template, and says nothing about the units after it."""
    plant(tmp_path, {f"/etc/systemd/system/{unit}": "[Service]\nExecStart=/bin/true\n"})
    asked = Programs({"systemctl show": (0, "", "")})
    node = observe(asked)
    assert not [line for line in asked.asked if "k3s-" in line.replace("k3s-agent.service", "")]
    assert unit not in node["systemd"]["unknown"]


def test_a_unit_with_another_name_is_asked_for_by_itself(observe, tmp_path):
    """A name that systemd rejects does not make the known units unknown."""
    plant_node(tmp_path, K3S)
    rename_unit(tmp_path, K3S, "k3s-gpu.service")
    asked = Programs({"systemctl show": (1, "", "Unit name k3s-gpu.service is not valid.\n")})
    observe(asked)
    lines = [line.partition(" -- ")[2].split() for line in asked.asked]
    assert ["k3s-gpu.service"] in lines
    assert all("k3s-gpu.service" not in line for line in lines if len(line) > 1)


ROOTLESS = "sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service"
ROOTLESS_UNIT = "k3s-rootless.service of the user 1000"


@pytest.mark.parametrize("role", ["preflight", "kubelet_device_plugins"])
@pytest.mark.parametrize("slice_", ["app.slice/", ""])
def test_rootless_k3s_is_named_where_a_kubelet_is_needed(observe, tmp_path, slice_, role):
    (tmp_path / f"{ROOTLESS}/{slice_}k3s-rootless.service").mkdir(parents=True)
    kubelet = observe(Programs({}))["kubelet"]
    assert kubelet["rootless"] == {"name": "rootless k3s", "unit": ROOTLESS_UNIT}
    changes = {"installed": kubelet["installed"], "rootless": kubelet["rootless"]}
    (refusal,) = plan(role, merge(NODE, {"kubelet": changes}))["refusals"]
    assert refusal["code"] == "DISTRIBUTION_UNSUPPORTED"
    assert f"rootless k3s ({ROOTLESS_UNIT})" in refusal["message"]


@pytest.mark.parametrize("role", ["preflight", "kubelet_device_plugins"])
def test_rootless_k3s_beside_a_kubelet_is_ignored(role):
    rootless = {"rootless": {"name": "rootless k3s", "unit": ROOTLESS_UNIT}}
    assert codes(plan(role, merge(NODE, {"kubelet": rootless}))) == []


def test_no_user_blocks_a_node_without_kubelet_by_the_name_of_a_unit(observe, tmp_path):
    """Every user can start a unit of this name. Docker needs no kubelet, and neither does a reboot.

    Nor does it count as a kubelet that runs, with which a teardown would not remove Docker.
    """
    before = observe(Programs({}))
    (tmp_path / f"{ROOTLESS}/app.slice/k3s-rootless.service").mkdir(parents=True)
    found = observe(Programs({}))
    rootless = found["kubelet"].pop("rootless")
    assert (rootless["unit"], before["kubelet"].pop("rootless")) == (ROOTLESS_UNIT, None)
    assert found["kubelet"] == before["kubelet"]
    kubelet = {**NODE["kubelet"], **found["kubelet"], "rootless": rootless}
    node = {**merge(NODE, load("docker")), "kubelet": kubelet}
    nouveau = merge(node, {"kernel": {"modules": ["nouveau"]}})
    for role in ("docker_ce", "nvidia_container_runtime"):
        assert "DISTRIBUTION_UNSUPPORTED" not in codes(plan(role, node))
    assert "DISTRIBUTION_UNSUPPORTED" not in codes(plan("nvidia_driver", nouveau, reboot_ok=True))


def test_microk8s_has_no_home(observe):
    unit = "snap.microk8s.daemon-kubelite.service"
    show = f"Id={unit}\nLoadState=loaded\nActiveState=active\n"
    node = observe(Programs({"systemctl show": (0, show, "")}))
    assert node["kubelet"]["distribution"] == {"name": "MicroK8s", "unit": unit}
    assert node["engines"]["containerd"]["home"] is None


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/opt/azure/containers/provision.sh", "AKS"),
        ("/etc/eks/x", "EKS"),
        ("/var/lib/kubelet/kubeadm-flags.env", "kubeadm"),
        ("/etc/containerd/cri-base.json", "Kubespray"),
        ("/usr/local/nvidia/toolkit/x", "the GPU Operator"),
    ],
)
def test_tools_are_recognised(observe, tmp_path, path, name):
    plant(tmp_path, {path: ""})
    assert observe(Programs({}))["tools"] == [name]
