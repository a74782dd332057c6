# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from metal_gpu.answering import Answer, State
from metal_gpu.hosts import Host
from metal_gpu.nodes import Node
from metal_gpu.reach import Reached
from metal_gpu.scan import Machine, find
from metal_gpu.ssh.settings import Settings
from metal_gpu.targets import Target
from metal_gpu.terminal import scan_inventory

_VIRGIN = Path(__file__).parents[1] / "fixtures" / "plans" / "virgin.yml"
_BEFORE = "# ours\ngpu_nodes:\n  hosts:\n    gpu-9: {gpu_count: 8}\n"


@pytest.fixture
def machines() -> list[Machine]:
    host = Host("gpu-1", "192.0.2.11", 2222, "admin")
    answer = Answer(Target("gpu-1", 2222, "admin", "argument 1"), 2222, State.SSH, "SSH-2.0-x")
    observed = yaml.safe_load(_VIRGIN.read_text())
    return find([Reached(host, answer)], lambda hosts: [Node(hosts[0], observed)])


def test_new_inventory(tmp_path: Path, machines: list[Machine]) -> None:
    path = tmp_path / "inventory.yml"
    settings = Settings(key_file="keys/id", jump="bastion")
    change = scan_inventory.prepared(path, machines, settings)
    assert change
    scan_inventory.write(change, show=True, quiet=False)
    content = yaml.safe_load(path.read_text())
    assert content["gpu_nodes"]["hosts"] == {
        "gpu-1": {"ansible_host": "192.0.2.11", "ansible_port": 2222, "gpu_count": 2}
    }
    assert content["gpu_nodes"]["vars"] == {
        "ansible_user": "admin",
        "ansible_ssh_private_key_file": str(Path("keys/id").absolute()),
        "ansible_ssh_common_args": "-o ProxyJump=bastion",
        "ansible_python_interpreter": "auto_silent",
        "ansible_pipelining": True,
    }
    assert content["gpu_tesla_p100_pcie_16gb"] == {"hosts": {"gpu-1": {}}}


def test_file_that_exists_stays(
    tmp_path: Path, machines: list[Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "inventory.yml"
    path.write_text(_BEFORE)
    scan_inventory.check(path)
    change = scan_inventory.prepared(path, machines, Settings())
    assert change
    scan_inventory.write(change, show=True, quiet=False)
    shown = capsys.readouterr()
    assert [*yaml.safe_load(shown.out)["gpu_nodes"]["hosts"]] == ["gpu-1"]
    assert f"{path} lacks gpu-1: add the lines above to it" in shown.err.replace("\n", " ")
    assert path.read_text() == _BEFORE


def test_nothing_to_write(
    tmp_path: Path, machines: list[Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "inventory.yml"
    assert scan_inventory.prepared(None, machines, Settings()) is None
    bare = [Machine(**{**one, "gpus": []}) for one in machines]
    assert scan_inventory.prepared(path, bare, Settings()) is None
    assert "no machine with a GPU was found" in capsys.readouterr().err
    assert not path.exists()
    first = scan_inventory.prepared(path, machines, Settings())
    assert first
    scan_inventory.write(first, show=True, quiet=True)
    again = scan_inventory.prepared(path, machines, Settings())
    assert again
    scan_inventory.write(again, show=True, quiet=False)
    assert "nothing to add" in capsys.readouterr().err
