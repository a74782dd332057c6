# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from metal_gpu.inventory_file import Entry, InventoryRefused, Prepared, merge, prepare, save

GPU_1 = Entry("gpu-1", "192.0.2.11", 4, ("gpu_tesla_p100_pcie_16gb",), {"ansible_user": "admin"})
GPU_2 = Entry(
    "gpu-2",
    "192.0.2.12",
    8,
    ("gpu_h100", "gpu_l4"),
    {"ansible_user": "admin", "ansible_port": 2222},
)
EXISTING = """\
# Owned by the platform team.
all:
  vars:
    ntp: time.example   # theirs
  children:
    web:
      hosts: {web-1: {}}
    gpu_nodes:
      children:
        rack1:
        rack2: {}
    rack1:
      hosts:
        gpu-a:            # the first one
          ansible_host: "192.0.2.11"
          secret: !vault |
            $ANSIBLE_VAULT;1.1;AES256
            6162
        gpu-b: {gpu_count: 2, ansible_host: 192.0.2.20}
"""


def _listed(path: Path) -> dict[str, dict[str, Any]]:
    """Return the inventory as Ansible reads it."""
    program = Path(sys.executable).parent / "ansible-inventory"
    done = subprocess.run(
        [program, "-i", path, "--list"], capture_output=True, text=True, check=True, cwd=path.parent
    )
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def test_new_file(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yml"
    prepared = prepare(path, [GPU_1, GPU_2])
    assert not path.exists()
    assert prepared.diff.startswith("--- /dev/null\n")
    save(prepared)
    listed = _listed(path)
    variables = listed["_meta"]["hostvars"]
    assert listed["gpu_nodes"]["hosts"] == ["gpu-1", "gpu-2"]
    assert listed["gpu_tesla_p100_pcie_16gb"]["hosts"] == ["gpu-1"]
    assert listed["gpu_l4"]["hosts"] == ["gpu-2"]
    common = {
        "ansible_user": "admin",
        "ansible_python_interpreter": "auto_silent",
        "ansible_pipelining": True,
    }
    assert variables == {
        "gpu-1": {"ansible_host": "192.0.2.11", "gpu_count": 4, **common},
        "gpu-2": {"ansible_host": "192.0.2.12", "ansible_port": 2222, "gpu_count": 8, **common},
    }
    again = prepare(path, [GPU_1, GPU_2])
    assert not again.is_changed
    assert again.diff == ""


@pytest.mark.parametrize("is_variable", [True, False])
def test_a_python_that_ansible_is_configured_for_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_variable: bool
) -> None:
    """A variable of the inventory would come before it."""
    monkeypatch.chdir(tmp_path)
    if is_variable:
        monkeypatch.setenv("ANSIBLE_PYTHON_INTERPRETER", "/usr/bin/python3.11")
    else:
        Path("ansible.cfg").write_text("[defaults]\ninterpreter_python = /usr/bin/python3.11\n")
    assert "python" not in prepare(Path("inventory.yml"), [GPU_1]).after.replace("playbook", "")


def test_merge(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yml"
    path.write_text(EXISTING)
    path.chmod(0o640)
    prepared = prepare(path, [GPU_1, GPU_2])
    removed = [line for line in prepared.diff.splitlines() if line.startswith("-")]
    assert removed == [f"--- {path}"]
    save(prepared)
    text = path.read_text()
    assert [line for line in EXISTING.splitlines() if line not in text.splitlines()] == []
    assert path.stat().st_mode & 0o777 == 0o640
    listed = _listed(path)
    assert listed["rack1"]["hosts"] == ["gpu-a", "gpu-b"]
    assert listed["gpu_nodes"]["hosts"] == ["gpu-2"]
    assert listed["gpu_tesla_p100_pcie_16gb"]["hosts"] == ["gpu-a"]
    known = listed["_meta"]["hostvars"]
    assert known["gpu-a"]["gpu_count"] == 4
    assert "ansible_user" not in known["gpu-a"]
    assert not prepare(path, [GPU_1, GPU_2]).is_changed
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == ["inventory.yml"]


def test_what_the_inventory_says_wins() -> None:
    entry = Entry("gpu-x", "192.0.2.20", 1, (), {})
    text, notices = merge("inventory.yml", EXISTING, [entry])
    assert text == EXISTING
    assert notices == [
        "gpu-b: gpu_count is 2 in the inventory, and the machine has 1 GPUs; the inventory is kept"
    ]


def test_names_that_collide() -> None:
    """It may be the same machine, at another of its addresses."""
    entry = Entry("gpu-b", "192.0.2.99", 1, (), {})
    text, notices = merge("inventory.yml", EXISTING, [entry])
    assert text == EXISTING
    assert len(notices) == 1
    assert "gpu-b (192.0.2.99) is not written: it may be gpu-b of the inventory" in notices[0]


@pytest.mark.parametrize(
    "text",
    ["gpu_nodes:\n  hosts:\n", "gpu_nodes:\n", "all:\n", "", "# nothing yet\n", "gpu_nodes: {}\n"],
)
def test_almost_empty_inventories(tmp_path: Path, text: str) -> None:
    path = tmp_path / "inventory.yml"
    path.write_text(text)
    save(prepare(path, [GPU_1]))
    assert _listed(path)["gpu_nodes"]["hosts"] == ["gpu-1"]
    assert not prepare(path, [GPU_1]).is_changed


def test_another_file_can_have_the_result(tmp_path: Path) -> None:
    path, other = tmp_path / "inventory.yml", tmp_path / "other.yml"
    path.write_text(EXISTING)
    save(prepare(other, [GPU_1], source=path))
    assert path.read_text() == EXISTING
    assert "gpu_count: 4" in other.read_text()


def test_a_link_stays(tmp_path: Path) -> None:
    path, link = tmp_path / "real.yml", tmp_path / "inventory.yml"
    path.write_text(EXISTING)
    link.symlink_to("real.yml")
    save(prepare(link, [GPU_1]))
    assert link.is_symlink()
    assert "gpu_count: 4" in path.read_text()


def test_a_file_that_changed_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yml"
    path.write_text(EXISTING)
    prepared = prepare(path, [GPU_1])
    path.write_text("gpu_nodes: {}\n")
    with pytest.raises(InventoryRefused, match="has changed since it was read"):
        save(prepared)
    assert path.read_text() == "gpu_nodes: {}\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"$ANSIBLE_VAULT;1.1;AES256\n6162\n", "line 1: the file is encrypted with Ansible Vault"),
        (b"gpu_nodes:\n  hosts: \xff\n", "line 2: the text is not UTF-8"),
        (b"gpu_nodes:\n  hosts: [\n", "line 3"),
        (b"[gpu_nodes]\ngpu-1 gpu_count=4\n", "Only inventories in YAML can be merged"),
        (b"gpu_nodes:\n  hosts: {}\n  hosts: {}\n", "line 3"),
        (b"#!/bin/sh\necho {}\n", "line 1: the file is a program"),
        (b"plugin: amazon.aws.aws_ec2\n", "configuration of the inventory plugin"),
        (b"gpu_nodes:\n  gpu-1:\n", "gpu_nodes has 'gpu-1'; a group has only hosts"),
        (b"gpu_nodes:\n  hosts: [gpu-1]\n", "gpu_nodes.hosts is ['gpu-1'], expected a mapping"),
    ],
)
def test_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "inventory.yml"
    path.write_bytes(content)
    with pytest.raises(InventoryRefused) as caught:
        prepare(path, [GPU_1])
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content


def test_refused_places(tmp_path: Path) -> None:
    with pytest.raises(InventoryRefused, match=r"is a folder\. Name a YAML file in it"):
        prepare(tmp_path, [GPU_1])
    with pytest.raises(InventoryRefused, match="its folder does not exist"):
        prepare(tmp_path / "no" / "inventory.yml", [GPU_1])
    with pytest.raises(InventoryRefused, match="is not a regular file"):
        prepare(Path("/dev/null"), [GPU_1])


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path / "no" / "inventory.yml", None, "x\n", ())
    with pytest.raises(InventoryRefused):
        save(prepared)
    assert not (tmp_path / "no").exists()


RANGE = """\
gpu_nodes:
  hosts:
    gpu-[1:3]: {gpu_count: 8, ansible_user: root}
"""
LOST = GPU_2._replace(gpu_count=7, groups=("gpu_h100",))  # a card is lost


def test_host_of_a_range_keeps_what_the_range_says(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yml"
    path.write_text(RANGE)
    prepared = prepare(path, [LOST])
    assert prepared.collisions == (
        "gpu-2: gpu_count is 8 in the inventory, and the machine has 7 GPUs; the inventory is kept",
    )
    save(prepared)
    listed = _listed(path)
    assert listed["gpu_h100"]["hosts"] == ["gpu-2"]
    assert listed["_meta"]["hostvars"]["gpu-2"] == {"gpu_count": 8, "ansible_user": "root"}
    assert not prepare(path, [LOST]).is_changed


def test_range_without_a_count_gets_one_for_the_host(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yml"
    path.write_text(RANGE.replace("gpu_count: 8, ", ""))
    save(prepare(path, [LOST]))
    known = _listed(path)["_meta"]["hostvars"]
    assert known["gpu-2"] == {"gpu_count": 7, "ansible_user": "root"}
    assert known["gpu-1"] == {"ansible_user": "root"}


@pytest.mark.parametrize(
    "file", ["group_vars/all.yml", "group_vars/gpu_nodes/own.yml", "host_vars/gpu-2.yml"]
)
def test_count_beside_the_inventory_wins(tmp_path: Path, file: str) -> None:
    path = tmp_path / "inventory.yml"
    path.write_text("gpu_nodes:\n  hosts:\n    gpu-2:\n")
    beside = tmp_path / file
    beside.parent.mkdir(parents=True)
    beside.write_text("password: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162\ngpu_count: 8\n")
    (beside.parent / "all.json").write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n")
    prepared = prepare(path, [LOST])
    assert len(prepared.collisions) == 1
    assert "gpu_count" not in prepared.after


def test_unreadable_file_beside_the_inventory(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yml"
    path.write_text("gpu_nodes:\n  hosts:\n    gpu-2:\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text("a: 1\nb: [\n")
    with pytest.raises(InventoryRefused, match=r"all\.yml, line 3"):
        prepare(path, [LOST])


def test_address_by_its_older_name() -> None:
    text = "gpu_nodes:\n  hosts:\n    node-7: {ansible_ssh_host: 192.0.2.11, gpu_count: 4}\n"
    merged, notices = merge("inventory.yml", text, [GPU_1])
    assert (merged.count("gpu_count"), notices) == (1, [])
