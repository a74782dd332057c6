# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from metal_gpu.inventory_file import Entry, InventoryRefused, prepare, save

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
gpu_nodes:
  hosts:
    gpu-a: {ansible_host: 192.0.2.11, gpu_count: 2}   # the first one
    gpu-2: {}
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
    assert (again.is_new, again.lines, again.collisions) == (False, "", ())


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
    assert "python" not in prepare(Path("inventory.yml"), [GPU_1]).lines.replace("playbook", "")


@pytest.mark.parametrize(
    ("entries", "lines", "collisions"),
    [
        pytest.param([], "", [], id="nothing was found"),
        pytest.param([GPU_2], "", [], id="known by its name, without a count"),
        pytest.param(
            [GPU_1._replace(gpu_count=2)], "", [], id="known by its address under another name"
        ),
        pytest.param(
            [GPU_1], "", ["gpu-a: gpu_count is 2 in {path}, and the machine has 4 GPUs"],
            id="a GPU more, or the count is wrong",
        ),
        pytest.param(
            [Entry("gpu-3", "192.0.2.13", 1, ("gpu_l4",), {"ansible_user": "admin"})],
            "gpu_nodes:\n  hosts:\n    gpu-3:\n      ansible_host: \"192.0.2.13\"\n"
            "      ansible_user: admin\n      gpu_count: 1\ngpu_l4:\n  hosts:\n    gpu-3: {}\n",
            ["{path} lacks gpu-3: add the lines above to it"], id="a new machine",
        ),
    ],
)  # fmt: skip
def test_file_that_exists_stays_and_what_it_lacks_is_told(
    tmp_path: Path, entries: list[Entry], lines: str, collisions: list[str]
) -> None:
    path = tmp_path / "inventory.yml"
    path.write_text(EXISTING)
    prepared = prepare(path, entries)
    assert (prepared.is_new, prepared.lines) == (False, lines)
    assert [*prepared.collisions] == [one.format(path=path) for one in collisions]
    assert path.read_text() == EXISTING


def test_file_that_appears_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yml"
    prepared = prepare(path, [GPU_1])
    path.write_text(EXISTING)
    with pytest.raises(InventoryRefused, match="has appeared since the scan began"):
        save(prepared)
    assert path.read_text() == EXISTING


def test_file_that_is_no_inventory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yml"
    path.write_text("gpu_nodes: [gpu-1\n")
    with pytest.raises(InventoryRefused, match=re.escape(str(path))):
        prepare(path, [GPU_1])
    with pytest.raises(InventoryRefused, match="its folder does not exist"):
        prepare(tmp_path / "no" / "inventory.yml", [GPU_1])
