# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes full of secrets become GPU nodes; the tests need nothing but what these runs leave."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

sys.path.append(str(Path(__file__).parent))

import canaries
import installed
from breaks import CONTAINERD, NODE, SCENARIO
from private_mirror import PORT, READER, private_mirror

GPU_3 = "--limit=gpu-3"
ROLES = ("nvidia_driver", "nvidia_container_runtime")
# Of the table: the name, six numbers, and the codes.
ROW = r"^[ \"]*(?P<node>gpu-\d) .*?(?: +(?:-|busy|\d+(?:/\d+)?)){6} +(?P<verdict>.*)$"
ADMIN = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: operator, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: operator, namespace: default}]
"""


class Story(NamedTuple):
    """What was planted, what was run, and what came of it."""

    canaries: dict[str, str]
    runs: dict[str, installed.Run]
    results: Path  # as callbacks got them
    home: Path  # what Ansible has kept on the controller
    inventory: Path
    started: str  # in seconds of the epoch
    planted: dict[str, dict[str, canaries.Copy]]  # by node and path
    programs: dict[str, set[str]]  # whose command lines had a secret, by node
    readers: set[str]  # addresses that have used the password of the mirror


@pytest.fixture(scope="session")
def story(laboratory: Any, tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("story")
    planted = canaries.invent()
    laboratory.kubectl("apply", "-f", "-", stdin=ADMIN)
    laboratory.kubectl("apply", "-f", "-", stdin=canaries.pull_secret(planted))
    kubeconfig = folder / "kubeconfig"
    laboratory.kubeconfig_of("operator", kubeconfig)
    (user,) = yaml.safe_load(kubeconfig.read_text())["users"]
    planted["token"] = user["user"]["token"].rpartition(".")[2]  # its signature
    canaries.plant(laboratory, planted)

    gateway, mirror = laboratory.facts["gateway"], laboratory.facts["mirror"]["url"]
    inventory = _inventory(laboratory, folder / "inventory.yml", planted, str(kubeconfig))
    refused = _refused_inventory(laboratory, folder / "refused.yml", planted)
    # From the next second on: what was planted until now is in the journal, by sudo.
    started = str(int(laboratory.host("gpu-1").check_output("date +%s")) + 1)
    options = ("-vvvv", "--diff")
    variables = {
        "ANSIBLE_CALLBACK_PLUGINS": str(SCENARIO / "callback_plugins"),
        "ANSIBLE_CALLBACKS_ENABLED": "all_results",
        "ALL_RESULTS": str(folder / "results.jsonl"),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "home" / "tmp"),
    }

    def play(name: str, *words: str, inventory: Path = inventory) -> installed.Run:
        run: installed.Run = laboratory.playbook(
            name, *options, *words, inventory=inventory, **variables
        )
        return run

    passwords = (planted["mirror"], planted["apt_auth"])
    before = {node: canaries.copies(laboratory, node) for node in canaries.NODES}
    runs: dict[str, installed.Run] = {}
    with (
        private_mirror(gateway, mirror, passwords) as readers,
        canaries.watched_processes(laboratory, canaries.NODES) as programs,
        ThreadPoolExecutor() as pool,
    ):
        runs["verify, of virgin nodes"] = play(
            "metal.gpu.verify", "-e", "verify_smoke=false", "-e", "verify_capacity_timeout=0"
        )
        runs["refused"] = play(NODE, "--tags=runtime", inventory=refused)
        docker = pool.submit(play, NODE, GPU_3)
        runs["site"] = play("metal.gpu.site", CONTAINERD)
        runs["node"] = docker.result()
        runs["registries"] = play("metal.gpu.site", GPU_3, "--tags=registries")
        runs["verify"] = play("metal.gpu.verify", CONTAINERD)
    return Story(
        planted,
        runs,
        folder / "results.jsonl",
        folder / "home",
        inventory,
        started,
        before,
        programs,
        readers,
    )


def _inventory(laboratory: Any, path: Path, planted: dict[str, str], kubeconfig: str) -> Path:
    """Write the inventory of an admin whose mirror wants a password, and who uses a token."""
    login = f"{READER}:{planted['mirror']}@"

    def edit(group: Any) -> None:
        group["vars"] |= {
            "metal_gpu_kubeconfig": kubeconfig,
            "device_plugin_image_pull_secrets": ["registry"],
            "verify_smoke_image_pull_secrets": ["registry"],
        }
        for role in ROLES:
            url, key = (group["vars"][f"{role}_repository_{name}"] for name in ("url", "key"))
            for node in ("gpu-1", "gpu-3"):
                group["hosts"][node] |= {
                    f"{role}_repository_url": _moved(laboratory, url, login),
                    f"{role}_repository_key": _moved(laboratory, key, login),
                }
            # The password of this one is in a file of apt's.
            group["hosts"]["gpu-2"][f"{role}_repository_url"] = _moved(laboratory, url, "")

    return Path(laboratory.inventory_with(path, edit))


def _refused_inventory(laboratory: Any, path: Path, planted: dict[str, str]) -> Path:
    """Write one with passwords that are wrong, and with a mirror that is away."""
    wrong = f"{READER}:{planted['refused_mirror']}@"
    silent = f"{READER}:{planted['silent_mirror']}@"

    def edit(group: Any) -> None:
        role = "nvidia_container_runtime"
        url, key = (group["vars"][f"{role}_repository_{name}"] for name in ("url", "key"))
        hosts = group["hosts"]
        hosts["gpu-1"][f"{role}_repository_url"] = _moved(laboratory, url, wrong)
        hosts["gpu-2"][f"{role}_repository_url"] = _moved(laboratory, url, silent, port=9)
        hosts["gpu-3"][f"{role}_repository_key"] = _moved(laboratory, key, wrong)

    return Path(laboratory.inventory_with(path, edit))


def _moved(laboratory: Any, url: str, login: str, port: int = PORT) -> str:
    """Return an address of the laboratory's mirror, as one of the mirror that wants a password."""
    facts = laboratory.facts
    return url.replace(facts["mirror"]["url"], f"http://{login}{facts['gateway']}:{port}")


# -------------------------------------------------------------------------------------------------
# After that


@pytest.fixture(scope="session")
def ready(laboratory: Any, story: Story) -> Any:
    """Give the laboratory whose containerd nodes hand their GPUs out."""
    assert story.runs["verify"].returncode == 0, story.runs["verify"].output[-4000:]
    return laboratory


@pytest.fixture
def verdicts(ready: Any) -> Any:
    """Return a function that runs metal.gpu.verify, and returns the codes of each node.

    A code is in the table, and its finding is explained: with the name of the node, or of the
    cluster. `words` and `seconds` of the function are those of its last run.
    """

    def verify(*options: str, **watched: Any) -> dict[str, set[str]]:
        run = ready.playbook("metal.gpu.verify", *options, **watched)
        lines = {
            row["node"]: set(re.findall(r"[A-Z][A-Z_]+", row["verdict"]))
            for row in re.finditer(ROW, run.output, re.M)
        }
        assert lines
        for node, codes in lines.items():
            for code in codes:
                assert re.search(rf"{code} ({node}|cluster): ", run.words), (code, run.words)
        assert (run.returncode == 0) == (not any(lines.values()))
        verify.words, verify.seconds = run.words, run.seconds
        return lines

    return verify
