# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run of the role verify says, where this machine and one that is away stand for nodes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
NOWHERE = "http://127.0.0.1:1"
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "none", "cluster": {"server": NOWHERE}}],
    "users": [{"name": "nobody", "user": {"token": "none"}}],
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "nobody"}}],
    "current-context": "none",
}
HOSTS = {
    "here": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable},
    "away": {"ansible_host": "127.0.0.1", "ansible_port": 1},
}
PLAY = {
    "hosts": "gpu_nodes",
    "gather_facts": False,
    "tasks": [{"ansible.builtin.import_role": {"name": "metal.gpu.verify"}}],
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what verify says where the cluster gives no answer, and one node none either."""
    folder = tmp_path_factory.mktemp("verify")
    variables = {"metal_gpu_kubeconfig": str(folder / "kubeconfig"), "gpu_count": 1000}
    documents = {
        "kubeconfig": KUBECONFIG,
        "inventory.yml": {"gpu_nodes": {"hosts": HOSTS, "vars": variables}},
        "play.yml": [PLAY],
    }
    for name, document in documents.items():
        (folder / name).write_text(yaml.safe_dump(document), encoding="utf-8")
    program = Path(sys.executable).parent / "ansible-playbook"
    run = subprocess.run(
        [program, "-i", folder / "inventory.yml", folder / "play.yml"],
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible" / "collections"),
            "ANSIBLE_HOME": str(folder / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2, run.stdout + run.stderr
    # From 2.19 on, ansible-core shows each error twice.
    return re.sub(r"^\[ERROR\].*?(?=^fatal: )", "", run.stdout, flags=re.MULTILINE | re.DOTALL)


def codes(said: str, host: str) -> list[str]:
    """Return the codes in the last column of the table."""
    row = re.search(rf'^ +"{host} .*"', said, re.MULTILINE)
    assert row, said
    return re.findall(r"[A-Z]+_[A-Z_]+", row[0])


@pytest.mark.parametrize("host", HOSTS)
def test_every_code_in_the_table_is_explained_once(said: str, host: str) -> None:
    found = codes(said, host)
    assert "CLUSTER_UNUSABLE" in found
    for code in found:
        about = "cluster" if code == "CLUSTER_UNUSABLE" else host
        assert said.count(f"{code} {about}: ") == 1, (code, said)


def test_a_node_that_is_away_does_not_hide_behind_the_cluster(said: str) -> None:
    assert "NODE_UNREACHABLE" in codes(said, "away")
    # Whatever this machine has, it has less than a thousand GPUs.
    assert {"NO_GPU", "GPU_COUNT_DIFFERS"} & {*codes(said, "here")}


def test_the_plans_are_made_from_one_observation(said: str) -> None:
    assert said.count("TASK [metal.gpu.verify : Observe the node, and plan") == 1
    # No machine that runs tests has joined a cluster as a GPU node.
    assert {"KUBELET_MISSING", "INIT_UNSUPPORTED", "DRIFTED"} & {*codes(said, "here")}
    assert "RUN_STOPPED" not in said
