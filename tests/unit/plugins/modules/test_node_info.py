# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe import program_files
from ansible_collections.metal.gpu.plugins.modules import node_info
from ansible_collections.metal.gpu.tests.unit.support.module_args import patch_module_args
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import (
    parse_scene,
    plant,
    recording,
)


@pytest.fixture
def collect(tmp_path):
    """Return what the module hands over of the planted node."""

    def run(programs, packages=(), repositories=()):
        node = node_info.Node(tmp_path, programs.run, programs.find)
        return node_info.run(node, list(packages), list(repositories))["raw"]

    return run


def test_only_texts_that_matter_travel(collect, tmp_path):
    plant(tmp_path, parse_scene(recording("nodes/p100.txt")))
    texts = collect(Programs({}))["texts"]
    assert "/usr/lib/udev/rules.d/71-nvidia-dev-char.rules" in texts
    assert "/usr/lib/udev/rules.d/60-block.rules" not in texts
    assert "/etc/apt/sources.list.d/nvidia-cuda.sources" not in texts  # not requested


def test_configuration_travels_and_units_do_not(collect, tmp_path):
    """Units and their files may contain secrets; only their flags are needed."""
    plant(tmp_path, parse_scene(recording("nodes/kubelet-gates.txt")))
    raw = collect(Programs({}))
    assert {
        "/var/lib/kubelet/config.yaml",
        "/etc/kubernetes/kubelet.conf.d/10-gates.conf",
    } <= set(raw["texts"])
    units = {"/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet"}
    assert not units & set(raw["texts"])
    assert units <= set(raw["modified"])


def test_files_that_nvidia_smi_creates_are_there(collect, tmp_path):
    """For root, NVML creates them. The first observation after a boot must not miss them."""

    class Creating(Programs):
        def run(self, argv, **options):
            if argv[3].endswith("nvidia-smi"):
                (tmp_path / "dev").mkdir()
                (tmp_path / "dev/nvidia0").symlink_to("/dev/null")
            return super().run(argv, **options)

    raw = collect(Creating({"nvidia-smi": (0, "", "")}))
    paths = [file["path"] for file in raw["values"]["driver"]["device_files"]]
    assert paths == ["/dev/nvidia0"]


def test_packages_are_asked_for_in_one_command(collect):
    programs = Programs({"dpkg-query": (0, "", "")})
    collect(programs, packages=["python3-debian"])
    assert len(programs.asked) == 1
    assert programs.asked[0].endswith(" python3-debian")
    assert " libnvidia-* " in programs.asked[0]


@pytest.mark.parametrize(
    ("state", "reads"),
    [("active", False), ("activating", True), ("inactive", True), ("failed", True)],
)
def test_the_journal_is_read_only_where_the_kubelet_does_not_run(collect, state, reads):
    programs = Programs(
        {
            "systemctl show": (0, f"Id=kubelet.service\nActiveState={state}\n", ""),
            "kubelet": (0, "Kubernetes v1.37.1\n", ""),
            "journalctl": (0, "why\n", ""),
        }
    )
    assert ("journal" in collect(programs)["outputs"]) is reads


def test_the_journal_is_not_read_if_systemd_does_not_report_the_kubelet(collect):
    shown = "Id=containerd.service\nActiveState=active\n"
    programs = {"systemctl show": (0, shown, ""), "journalctl": (0, "old\n", "")}
    kubelet = {"kubelet": (0, "Kubernetes v1.37.1\n", "")}
    assert "journal" not in collect(Programs({**programs, **kubelet}))["outputs"]


def test_the_output_of_systemctl_stays_on_the_node(collect):
    """Because units can contain secrets."""
    shown = "Id=containerd.service\nEnvironment=TOKEN=x\n"
    outputs = collect(Programs({"systemctl show": (1, shown, "no bus\n")}))["outputs"]
    assert outputs["systemctl"] == {"rc": 1, "stdout": "", "stderr": "no bus\n"}


def test_processes_are_looked_at_only_when_asked(tmp_path):
    node = node_info.Node(tmp_path, Programs({}).run, Programs({}).find)
    assert node_info.run(node, [], [])["raw"]["values"]["driver"]["device_users"] is None
    asked = node_info.run(node, [], [], device_users=True)["raw"]
    assert asked["values"]["driver"]["device_users"] == []


@pytest.mark.parametrize("check", [True, False], ids=["check", "real"])
def test_the_whole_module_on_this_machine(capsys, check):
    with patch_module_args({"_ansible_check_mode": check}), pytest.raises(SystemExit):
        node_info.main()
    result = json.loads(capsys.readouterr().out)
    assert result["changed"] is False
    assert result["raw"]["texts"]["/proc/sys/kernel/osrelease"].strip() == os.uname().release


def test_programs_are_found_outside_of_the_path(monkeypatch):
    """Which is sudo's, and short on some systems."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert node_info.find_program("sh") in ("/usr/bin/sh", "/bin/sh")
    assert {"/usr/local/bin", "/opt/bin"} <= {*program_files.DIRECTORIES}
