# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`metal-gpu doctor` on bare nodes: it says what site would do, and changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

SCHEMA = Path(__file__).parents[3] / "src" / "metal_gpu" / "schemas" / "doctor.json"
STATE = """
find /etc /usr /tmp /var/tmp /root /home -xdev -type f -printf '%p %s %T@\\n' 2> /dev/null |
    sort | sha256sum
dpkg-query -W | sha256sum
"""
NOT_ASKED = 3


def test_nodes_of_the_inventory(laboratory, command):
    before = {node: laboratory.host(node).check_output(STATE) for node in laboratory.addresses}
    result = command("doctor", "--inventory", str(laboratory.inventory), "--json")
    assert {node: laboratory.host(node).check_output(STATE) for node in before} == before
    jsonschema.validate(json.loads(result.out), json.loads(SCHEMA.read_text()))
    for node, count in laboratory.gpu_count.items():
        host = result.hosts[node]
        assert host["observed"], host["findings"]
        assert len(host["machine"]["gpus"]) == count
        assert host["machine"]["node_name"] == node
        assert host["steps"][0]["role"] == "nvidia_driver"
    assert result.code in (0, 1)


def test_steps_are_those_of_the_playbook(laboratory, command):
    """One decision, made by the same code: check mode announces the same steps."""
    found = command("doctor", "--inventory", str(laboratory.inventory), "--json").hosts
    run = laboratory.playbook("metal.gpu.site", "--check")
    for host in found.values():
        assert not [one for one in host["steps"] if one["name"] not in run.words]


def test_text_has_a_line_for_each_host_and_remedies(laboratory, command, tmp_path):
    def away(group):
        group["hosts"]["gpu-9"] = {"ansible_host": laboratory.addresses["gpu-1"], "ansible_port": 9}

    inventory = laboratory.inventory_with(tmp_path / "hosts.yml", away)
    result = command("doctor", "--inventory", str(inventory))
    assert result.code == NOT_ASKED
    for node in ("gpu-1", "gpu-2"):
        assert f"{node}: Debian" in result.out
    assert "gpu-9: not examined" in result.out
    assert "NODE_UNREACHABLE" in result.out
    assert "remedy: " in result.out
    assert f"`metal-gpu site --inventory {inventory}` changes it" in result.err
    assert "\x1b[" not in result.out


def test_hanging_nvidia_smi_does_not_keep_it(laboratory, command):
    host = laboratory.host("gpu-2")
    host.check_output(
        "printf '#!/bin/sh\\nexec sleep 1000\\n' > /usr/local/bin/nvidia-smi && "
        "chmod 755 /usr/local/bin/nvidia-smi"
    )
    try:
        result = command("doctor", "-i", str(laboratory.inventory), "gpu-2", "--json")
    finally:
        host.check_output("rm /usr/local/bin/nvidia-smi")
    assert result.hosts["gpu-2"]["observed"]
    assert host.run("pgrep --full '[s]leep 1000'").rc == 1


def test_noise_of_the_login_does_not_matter(laboratory, command):
    host = laboratory.host("gpu-2")
    host.check_output("echo 'echo Welcome; echo Careful >&2' > ~admin/.bashrc")
    try:
        result = command("doctor", "-i", str(laboratory.inventory), "gpu-2", "--json")
    finally:
        host.check_output("rm ~admin/.bashrc")
    assert result.hosts["gpu-2"]["observed"]


def test_full_disk(laboratory, command):
    """Nothing is written on the node: not even a temporary file."""
    host = laboratory.host("gpu-2")
    host.check_output("mount -t tmpfs -o size=4k full /tmp")
    host.run("head -c 8k /dev/zero > /tmp/full")
    try:
        result = command("doctor", "-i", str(laboratory.inventory), "gpu-2", "--json")
    finally:
        host.check_output("umount /tmp")
    assert result.hosts["gpu-2"]["observed"]
