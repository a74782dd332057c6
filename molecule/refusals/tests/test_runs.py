# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs as users have them: another strategy, one fork, cached facts, a jump host, su.

All at once, and the nodes need nearly every step. Then nothing is left to do. The file name makes
pytest run it last, because the nodes of the other tests are virgin nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

PASSWORD = "correct-horse"
HIDDEN = "hidden-behind-gpu-1"  # a name that only gpu-1 knows
FIRST_RUN_BEFORE = 759  # lines of a first run on two nodes, while every role planned for itself

SETTINGS = """
[defaults]
strategy = free
forks = 1
gathering = smart
fact_caching = jsonfile
fact_caching_connection = {folder}/facts
stdout_callback = {callback}
"""
SSH = """
Host *
  User {user}
  IdentityFile {key}
  UserKnownHostsFile {known_hosts}
Host {hidden}
  HostKeyAlias {address}
"""
# Facts of another machine, as a cache keeps them.
STALE = {
    "ansible_architecture": "aarch64",
    "ansible_distribution": "Alpine",
    "ansible_distribution_version": "3.22",
    "ansible_kernel": "6.12.0",
    "ansible_os_family": "Alpine",
    "ansible_pkg_mgr": "apk",
    "ansible_service_mgr": "openrc",
}


class Ways(NamedTuple):
    """How to reach the nodes, and Ansible's settings for each callback."""

    inventory: Path
    settings: dict[str, str]


@pytest.fixture(scope="module")
def ways(laboratory: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    """gpu-1 becomes root by su with a password, and gpu-2 is only reachable through gpu-1."""
    folder = tmp_path_factory.mktemp("ways")
    settings = {}
    for callback in ("default", "metal.gpu.quiet"):
        path = folder / f"{callback}.cfg"
        path.write_text(SETTINGS.format(folder=folder, callback=callback))
        settings[callback] = str(path)
    address = laboratory.addresses["gpu-2"]
    (folder / "ssh_config").write_text(
        SSH.format(**laboratory.facts["ssh"], hidden=HIDDEN, address=address)
    )

    def edit(group: Any) -> None:
        group["hosts"]["gpu-1"] |= {
            "ansible_become_method": "su",
            "ansible_become_password": PASSWORD,
        }
        jump = laboratory.addresses["gpu-1"]
        group["hosts"]["gpu-2"] |= {
            "ansible_host": HIDDEN,
            "ansible_ssh_common_args": f"-F {folder}/ssh_config -o ProxyJump={jump}",
        }

    inventory = laboratory.inventory_with(folder / "inventory.yml", edit)
    remember = {"ansible.builtin.set_fact": {**STALE, "cacheable": True}}
    play = {"hosts": "gpu_nodes", "gather_facts": False, "tasks": [remember]}
    (folder / "stale.yml").write_text(yaml.safe_dump([play]))
    jump = laboratory.host("gpu-1")
    jump.check_output("echo %s %s >> /etc/hosts", address, HIDDEN)
    jump.check_output("echo root:%s | chpasswd", PASSWORD)
    stale = laboratory.playbook(
        str(folder / "stale.yml"), inventory=inventory, ANSIBLE_CONFIG=settings["default"]
    )
    assert stale.returncode == 0
    assert len(list((folder / "facts").iterdir())) == 2
    laboratory.lab("fault", "gpu-1", "no-sudo")
    yield Ways(inventory, settings)
    laboratory.lab("fault", "gpu-1", "sudo")


def site(laboratory: Any, ways: Ways, callback: str) -> Any:
    run = laboratory.playbook(
        "metal.gpu.site", inventory=ways.inventory, ANSIBLE_CONFIG=ways.settings[callback]
    )
    assert run.returncode == 0
    for node, count in laboratory.gpu_count.items():
        assert re.search(rf"{node} .*?(\s+{count}){{5}}\s+{count}/{count}\s+ok\b", run.output)
    return run


def test_first_run(laboratory, ways):
    run = site(laboratory, ways, "metal.gpu.quiet")
    assert re.search(r"^2 of 2 nodes ok, 5 GPUs, 2 changed, \d+ s$", run.output, re.M)
    lines = len(run.output.splitlines())
    print(f"\n{lines} lines for a first run on two nodes, {FIRST_RUN_BEFORE} before")
    assert lines < FIRST_RUN_BEFORE / 2


@pytest.mark.parametrize(
    ("callback", "of_each_node", "allowed"),
    [
        pytest.param("metal.gpu.quiet", 1, 40, id="quiet"),
        # Its observation, its row of the table, and its line of the recap.
        pytest.param("default", 3, 180, id="default"),
    ],
)
def test_lines_of_a_run_without_changes(laboratory, ways, callback, of_each_node, allowed):
    run = site(laboratory, ways, callback)
    assert re.search(r"\b2 of 2 nodes ok, 5 GPUs, 0 changed, \d+ s", run.output)
    lines = len(run.output.splitlines()) - len(laboratory.addresses) * of_each_node
    print(f"\n{lines} lines besides {of_each_node} for each node, {allowed} allowed")
    assert lines <= allowed
