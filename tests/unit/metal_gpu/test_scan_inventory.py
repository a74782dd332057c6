# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io
from pathlib import Path

import pytest
import typer
import yaml

from metal_gpu.answering import Answer, State
from metal_gpu.hosts import Host
from metal_gpu.nodes import Node
from metal_gpu.reach import Reached
from metal_gpu.scan import Machine, find
from metal_gpu.ssh.settings import Settings
from metal_gpu.targets import Target
from metal_gpu.terminal import exit_codes, scan_inventory

_VIRGIN = Path(__file__).parents[1] / "fixtures" / "plans" / "virgin.yml"
_BEFORE = "# ours\ngpu_nodes:\n  hosts:\n    gpu-9: {gpu_count: 8}\n"


@pytest.fixture
def machines() -> list[Machine]:
    host = Host("gpu-1", "192.0.2.11", 2222, "admin")
    answer = Answer(Target("gpu-1", 2222, "admin", "argument 1"), 2222, State.SSH, "SSH-2.0-x")
    observed = yaml.safe_load(_VIRGIN.read_text())
    return find([Reached(host, answer)], lambda hosts: [Node(hosts[0], observed)])


def _answer(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_new_inventory(tmp_path: Path, machines: list[Machine]) -> None:
    path = tmp_path / "inventory.yml"
    settings = Settings(key_file="keys/id", jump="bastion")
    change = scan_inventory.prepared(path, None, machines, settings)
    assert change
    scan_inventory.write(change, asks=True, show=True, quiet=False)
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


@pytest.mark.parametrize(("said", "is_written"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_question(
    tmp_path: Path,
    machines: list[Machine],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    said: str,
    is_written: bool,
) -> None:
    path = tmp_path / "inventory.yml"
    path.write_text(_BEFORE)
    change = scan_inventory.prepared(path, None, machines, Settings())
    assert change
    _answer(said, monkeypatch)
    scan_inventory.write(change, asks=True, show=True, quiet=False)
    shown = capsys.readouterr()
    assert "+    gpu-1:" in shown.out
    assert f"Write this to {path}?" in shown.err
    assert (path.read_text() != _BEFORE) is is_written
    assert path.read_text().startswith("# ours\n")


def test_the_merged_inventory_can_go_to_another_file(
    tmp_path: Path, machines: list[Machine]
) -> None:
    path, other = tmp_path / "inventory.yml", tmp_path / "new.yml"
    path.write_text(_BEFORE)
    scan_inventory.check(path, other, yes=False)
    change = scan_inventory.prepared(path, other, machines, Settings())
    assert change
    scan_inventory.write(change, asks=False, show=True, quiet=True)
    assert path.read_text() == _BEFORE
    assert [*yaml.safe_load(other.read_text())["gpu_nodes"]["hosts"]] == ["gpu-9", "gpu-1"]
    with pytest.raises(typer.Exit) as refused:
        scan_inventory.check(path, other, yes=False)
    assert refused.value.exit_code == exit_codes.USAGE


def test_nothing_to_write(
    tmp_path: Path, machines: list[Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "inventory.yml"
    assert scan_inventory.prepared(None, None, machines, Settings()) is None
    bare = [Machine(**{**one, "gpus": []}) for one in machines]
    assert scan_inventory.prepared(path, None, bare, Settings()) is None
    assert "no machine with a GPU was found" in capsys.readouterr().err
    assert not path.exists()
    first = scan_inventory.prepared(path, None, machines, Settings())
    assert first
    scan_inventory.write(first, asks=True, show=True, quiet=True)
    again = scan_inventory.prepared(path, None, machines, Settings())
    assert again
    scan_inventory.write(again, asks=True, show=True, quiet=False)
    assert "nothing to change" in capsys.readouterr().err
