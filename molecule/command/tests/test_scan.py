# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`metal-gpu scan` finds the bare machines of the laboratory, and writes their inventory."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def _options(laboratory: Any) -> list[str]:
    ssh = laboratory.facts["ssh"]
    return ["--user", ssh["user"], "--identity", ssh["key"]]


def _listed(path: Path) -> Any:
    program = Path(sys.executable).parent / "ansible-inventory"
    done = subprocess.run(
        [program, "-i", path, "--list"], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def test_a_network_has_the_machines(laboratory: Any, command: Any) -> None:
    """The addresses around the nodes belong to the laboratory's own network."""
    addresses = sorted(laboratory.addresses.values(), key=ipaddress.ip_address)
    network = ipaddress.ip_network(f"{addresses[0]}/28", strict=False)
    done = command("scan", "--json", *_options(laboratory), str(network), *addresses)
    assert done.code in (0, 3), done.err  # another container may answer SSH
    machines = {one["address"]: one for one in json.loads(done.out)["machines"]}
    for name, address in laboratory.addresses.items():
        machine = machines[address]
        assert machine["observed"], machine
        assert machine["host"] == machine["hostname"] == name
        assert len(machine["gpus"]) == laboratory.gpu_count[name]
        assert machine["driver"] is None
        assert machine["kubelet"]


def test_machines_that_do_not_answer_have_their_own_lines(laboratory: Any, command: Any) -> None:
    nobody = ("no-such-machine.invalid", f"{laboratory.addresses['gpu-1']}:1")
    good = laboratory.addresses["gpu-2"]
    done = command("scan", *_options(laboratory), *nobody, good)
    assert done.code == 3
    assert "no-such-machine.invalid: the name no-such-machine.invalid has no address" in done.err
    assert "Connection refused" in done.err
    assert "gpu-2" in done.out


def test_the_inventory_is_one_for_ansible(laboratory: Any, command: Any, tmp_path: Path) -> None:
    path = tmp_path / "inventory.yml"
    words = ("scan", *_options(laboratory), *laboratory.addresses.values())
    done = command(*words, "--write", str(path), "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["inventory"]["written"]
    listed = _listed(path)
    assert listed["gpu_nodes"]["hosts"] == list(laboratory.addresses)
    for name, address in laboratory.addresses.items():
        variables = listed["_meta"]["hostvars"][name]
        assert variables["gpu_count"] == laboratory.gpu_count[name]
        assert variables["ansible_host"] == address
    text = path.read_text()
    again = command(*words, "--write", str(path))
    assert again.code == 0, again.err
    assert path.read_text() == text


def test_an_inventory_stays_and_what_it_lacks_is_printed(
    laboratory: Any, command: Any, tmp_path: Path
) -> None:
    path = tmp_path / "inventory.yml"
    before = f"""\
gpu_nodes:
  hosts:
    old-name:  # its name is older than the machine's
      ansible_host: {laboratory.addresses["gpu-1"]}
      gpu_count: 77
"""
    path.write_text(before)
    words = ("scan", *_options(laboratory), *laboratory.addresses.values())
    done = command(*words, "--write", str(path))
    assert done.code == 1
    assert "old-name: gpu_count is 77 in " in done.err
    assert "lacks gpu-2: add the lines above to it" in done.err
    assert "    gpu-2:\n" in done.out
    assert path.read_text() == before


@pytest.mark.parametrize("name", ["gpu-1", "gpu-2"])
def test_top_shows_bare_machines(laboratory: Any, command: Any, name: str) -> None:
    address = laboratory.addresses[name]
    done = command("top", "--once", "--json", *_options(laboratory), address)
    assert done.code == 1, done.err
    (machine,) = json.loads(done.out)["machines"]
    assert (machine["answered"], machine["error"]) == (True, "nvidia-smi is not installed")
