# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which machines `metal-gpu doctor` and `metal-gpu top` ask, and what they say about it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import typer

from metal_gpu.terminal import exit_codes
from metal_gpu.terminal.machines import Chosen, chosen

_INVENTORY = """\
gpu_nodes:
  hosts:
    gpu-1: {ansible_host: 10.0.0.1, ansible_user: admin}
    gpu-2: {ansible_host: 10.0.0.2}
others:
  hosts:
    far:
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the command runs."""
    path = tmp_path / "work"
    path.mkdir()
    monkeypatch.chdir(path)
    for name in ("ANSIBLE_INVENTORY", "ANSIBLE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return path


@pytest.fixture
def inventory(folder: Path) -> Path:
    """What `metal-gpu scan --write` writes, in that folder."""
    path = folder / "inventory.yml"
    path.write_text(_INVENTORY)
    return path


def _addresses(found: Chosen) -> list[str]:
    return ["this machine" if one.local else one.address for one in found.hosts]


def test_without_an_inventory_it_is_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    found = chosen([], None)
    assert _addresses(found) == ["this machine"]
    assert [one.name for one in found.hosts] == [socket.gethostname()]
    assert found.options is None
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Only this machine: the folder has no inventory.yml")
    chosen([], None, quiet=True)
    assert capsys.readouterr().err == ""


def test_the_inventory_of_the_folder_has_the_fleet(
    inventory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with `metal-gpu site`, which needs no option for it."""
    found = chosen([], None)
    assert _addresses(found) == ["10.0.0.1", "10.0.0.2"]
    assert found.options == ""
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("inventory.yml in this folder names the machines.")
    assert "localhost" in line


@pytest.mark.parametrize("config", ["ansible.cfg", "variable"])
def test_an_inventory_of_ansibles_configuration_is_not_passed_over_in_silence(
    config: str,
    inventory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if config == "variable":
        monkeypatch.setenv("ANSIBLE_INVENTORY", "other.yml")
    else:
        inventory.with_name("ansible.cfg").write_text("[defaults]\ninventory = other.yml\n")
    assert _addresses(chosen([], None, quiet=True)) == ["this machine"]
    assert "--inventory FILE uses" in capsys.readouterr().err
    assert _addresses(chosen(["gpu-1"], None)) == ["gpu-1"]
    assert "--inventory FILE uses" in capsys.readouterr().err
    assert _addresses(chosen(["admin@gpu-1"], None)) == ["gpu-1"]
    assert capsys.readouterr().err == ""


def test_ansibles_configuration_may_name_the_inventory_of_the_folder(inventory: Path) -> None:
    inventory.with_name("ansible.cfg").write_text("[defaults]\ninventory = ./inventory.yml\n")
    assert _addresses(chosen([], None)) == ["10.0.0.1", "10.0.0.2"]


def test_the_configuration_of_a_folder_that_all_can_write_is_ignored(
    inventory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ansible does so, with a warning. The inventory there is used only if it is named."""
    inventory.with_name("ansible.cfg").write_text("[defaults]\ninventory = other.yml\n")
    inventory.unlink()
    inventory.parent.chmod(0o1777)
    assert _addresses(chosen([], None, quiet=True)) == ["this machine"]
    assert "ansible.cfg in this folder is ignored, as by Ansible" in capsys.readouterr().err
    assert _addresses(chosen(["gpu-1"], None)) == ["gpu-1"]
    said = capsys.readouterr().err
    assert "ansible.cfg in this folder is ignored" in said
    assert "Use another folder, or set ANSIBLE_CONFIG=ansible.cfg" in said  # as in /tmp
    inventory.parent.chmod(0o777)
    chosen([], None)
    assert "Run `chmod o-w .`, or set ANSIBLE_CONFIG=ansible.cfg" in capsys.readouterr().err
    inventory.write_text(_INVENTORY)
    for names in ([], ["gpu-1"]):
        with pytest.raises(typer.Exit) as ended:
            chosen(names, None)
        assert ended.value.exit_code == exit_codes.USAGE
        assert "add `--inventory inventory.yml`" in capsys.readouterr().err
    for names, path in ((["admin@gpu-1"], None), ([], inventory)):
        chosen(names, path)
        assert capsys.readouterr().err == ""
    monkeypatch.setenv("ANSIBLE_CONFIG", "ansible.cfg")
    assert _addresses(chosen([], None)) == ["this machine"]
    assert "is ignored" not in capsys.readouterr().err


def test_localhost_is_this_machine(inventory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = chosen(["localhost"], None)
    assert (_addresses(found), found.options) == (["this machine"], None)
    assert capsys.readouterr().err == ""
    assert _addresses(chosen(["localhost:2222"], None)) == ["localhost"]
    assert [one.local for one in chosen(["localhost"], None, by_ssh=True).hosts] == [False]


def test_names_of_the_inventory_of_the_folder(
    inventory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = chosen(["gpu-2", "others"], None)
    assert _addresses(found) == ["10.0.0.2", "far"]
    assert found.options == " --limit gpu-2,others"
    line = "inventory.yml in this folder says how to reach gpu-2, others.\n"
    assert capsys.readouterr().err == line
    mixed = chosen(["gpu-1", "gpu-9", "admin@gpu-2"], None)
    assert _addresses(mixed) == ["10.0.0.1", "gpu-9", "gpu-2"]
    assert mixed.options is None
    assert "inventory.yml does not have gpu-9" in capsys.readouterr().err


def test_a_named_inventory(inventory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = inventory.rename(inventory.with_name("my hosts.yml"))
    found = chosen(["gpu-1", "gpu_nodes"], other)
    assert _addresses(found) == ["10.0.0.1", "10.0.0.2"]
    assert found.options == f" --inventory '{other}' --limit gpu-1,gpu_nodes"
    assert capsys.readouterr().err == ""
    with pytest.raises(typer.Exit):
        chosen(["gpu-9"], other)
    assert "has no host and no group gpu-9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu_nodes: {gpu-1: , gpu-2: }\n", "no hosts. They belong below `hosts:` of a group"),
        ("gpu_nodes: {hosts: {}}\n", "no hosts."),
        ("gpu_node: {hosts: {gpu-1: }}\n", "has a group gpu_node; did you mean gpu_nodes?"),
        ("gpu-nodes: {hosts: {gpu-1: }}\n", "has a group gpu-nodes; did you mean gpu_nodes?"),
        ("others: {hosts: {far: }}\n", ""),
    ],
)
def test_an_inventory_that_names_nobody(
    text: str, said: str, inventory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory.write_text(text)
    for path in (None, inventory):
        if not said:
            assert _addresses(chosen([], path)) == ["far"]
            continue
        with pytest.raises(typer.Exit) as ended:
            chosen([], path)
        assert ended.value.exit_code == exit_codes.USAGE
        assert said in " ".join(capsys.readouterr().err.split())


def test_an_inventory_that_cannot_be_used_is_no_reason_to_look_elsewhere(
    inventory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory.write_text("gpu_nodes: [\n")
    for names in ([], ["gpu-1"]):
        with pytest.raises(typer.Exit) as ended:
            chosen(names, None)
        assert ended.value.exit_code == exit_codes.USAGE
        assert "inventory.yml, line 2" in capsys.readouterr().err
    assert _addresses(chosen(["admin@gpu-1", "10.0.0.7"], None)) == ["gpu-1", "10.0.0.7"]
