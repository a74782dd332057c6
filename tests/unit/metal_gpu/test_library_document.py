# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The examples of docs/library.md run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.tests.unit.support.api_server import ApiServer
from ansible_collections.metal.gpu.tests.unit.support.ssh_server import Machine
from metal_gpu import Fleet, inventory

DOCUMENT = (Path(__file__).parents[3] / "docs" / "library.md").read_text()
EXAMPLES = re.findall(r"^## ([^\n]+)\n|^```python\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)


def examples():
    """Yield the examples with the headings that they are under."""
    heading = ""
    for found, code in EXAMPLES:
        heading = found or heading
        if code:
            yield pytest.param(heading, code, id=heading)


@pytest.fixture
def scene(start, known, key, tmp_path, monkeypatch):
    """A machine at a loopback port, in the inventory and behind the addresses of the examples."""
    server = start(Machine(keys=[key]))
    known(server)
    (tmp_path / "home" / ".ssh" / "config").write_text(
        f"Host 10.0.0.7\n HostName 127.0.0.1\n Port {server.port}\n"
    )
    host = {"ansible_host": "127.0.0.1", "ansible_port": server.port, "ansible_user": "admin"}
    group = {"hosts": {"gpu-1": {**host, "ansible_become": False}}}
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump({"gpu_nodes": group}))
    monkeypatch.chdir(tmp_path)
    with ApiServer() as api:
        api.kubeconfig(tmp_path / "kubeconfig")
        yield


OUTPUT = {
    "Observe machines": r"gpu-1 .* GPUs\n|\['gpu-1', '10\.0\.0\.8'\]|\('gpu-1\.invalid', None\)",
    "Plan": r"gpu-1 NO_GPU|gpu-1 \w+ ",
    "Findings": r"NO_GPU refusal gpu-1: |^$",
    "Compare with the cluster": r"gpu-1 (True|False) \{'declared': None",
    "Connections": "admin",
    "Run a command": r"^[01] ",
    "Inventories": r"gpu-1 127\.0\.0\.1 \d+ admin",
}


@pytest.mark.usefixtures("scene")
@pytest.mark.parametrize(("heading", "code"), [*examples()])
def test_example(heading, code, capsys):
    exec(compile(code, "docs/library.md", "exec"), {})
    assert re.search(OUTPUT[heading], capsys.readouterr().out)


def test_every_name_of_the_document_exists():
    for name in re.findall(r"`Fleet\.(\w+)", DOCUMENT):
        assert hasattr(Fleet, name)
    assert inventory.read
