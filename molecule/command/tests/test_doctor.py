# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`metal-gpu doctor` on bare nodes: it says what site would do, and changes nothing."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

STATE = """
find /etc /usr /tmp /var/tmp /root /home -xdev -type f -printf '%p %s %T@\\n' 2> /dev/null |
    sort | sha256sum
dpkg-query -W | sha256sum
"""
NOT_ASKED, INTERRUPTED = 3, 130
STARTED = "/run/was-started"  # the stand-in for nvidia-smi writes it
HANGING = f"""
printf '%s\\n' '#!/bin/sh' 'touch {STARTED}' 'exec sleep 1000' > /usr/local/bin/nvidia-smi &&
    chmod 755 /usr/local/bin/nvidia-smi
"""
# What is on the node while it is observed: the shells with sudo, the program, its commands.
OF_THE_PROGRAM = "[m]etal-gpu-ready|[p]ython3 -I -B -$|[n]vidia-smi|[s]leep 1000"
LIMIT_S = 90  # of the program on a node: docs/terminal.md
# Where a program could write. The home of the login has its keys.
FOLDERS = "/tmp /var/tmp /run/user /dev/shm /root /home"
FILL = f"""
cp --archive /home /run/former-home
for folder in {FOLDERS}; do
    mkdir --parents $folder
    mount --types tmpfs --options size=1m,mode=1777 full $folder || exit 1
done
cp --archive /run/former-home/. /home
for folder in {FOLDERS}; do
    head --bytes=2M /dev/zero > $folder/full
    if echo more > $folder/more; then exit 1; fi
done
"""
# Lazily, because a process of a login can be in one of them.
EMPTY = f"umount --lazy {FOLDERS}; rm --recursive /run/former-home"


def test_nodes_of_the_inventory(laboratory, command):
    before = {node: laboratory.host(node).check_output(STATE) for node in laboratory.addresses}
    result = command("doctor", "--inventory", str(laboratory.inventory), "--json")
    assert {node: laboratory.host(node).check_output(STATE) for node in before} == before
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


@pytest.fixture
def hanging(laboratory: Any) -> Iterator[Any]:
    """The host of gpu-2, on which nvidia-smi hangs."""
    host = laboratory.host("gpu-2")
    host.check_output(HANGING)
    yield host
    host.check_output(f"rm --force /usr/local/bin/nvidia-smi {STARTED}")


def test_hanging_nvidia_smi_does_not_keep_it(laboratory, command, hanging):
    result = command("doctor", "-i", str(laboratory.inventory), "gpu-2", "--json")
    assert hanging.file(STARTED).exists
    assert result.hosts["gpu-2"]["observed"]
    findings = {one["code"]: one["message"] for one in result.hosts["gpu-2"]["findings"]}
    assert "nvidia-smi did not end within 30 s" in findings["NVML_UNAVAILABLE"]
    assert hanging.run(f"pgrep --full '{OF_THE_PROGRAM}'").rc == 1


def test_ctrl_c_leaves_nothing_on_the_node(laboratory, command, hanging):
    """The program of the node goes on without a reader, and ends by itself."""
    hanging.check_output(f"mkfifo {STARTED} && sed -i 's/touch/echo >/' /usr/local/bin/nvidia-smi")
    with subprocess.Popen(
        [command.program, "doctor", "-i", laboratory.inventory, "gpu-2", "--json"],
        cwd=command.home,
        env=command.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        hanging.check_output(f"timeout 60 cat {STARTED}")  # the stand-in waits for a reader
        processes = hanging.check_output(f"pgrep --full '{OF_THE_PROGRAM}'").split()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=20)  # nvidia-smi has 30 s
    assert (running.returncode, out) == (INTERRUPTED, ""), err
    assert "Traceback" not in err
    ends = "; ".join(f"tail --pid={process} --follow /dev/null" for process in processes)
    hanging.check_output(f"timeout {LIMIT_S} sh -c '{ends}'")
    assert hanging.run(f"pgrep --full '{OF_THE_PROGRAM}'").rc == 1


def test_noise_of_the_login_does_not_matter(laboratory, command):
    """A shell that prints, and sshd's own banner."""
    host = laboratory.host("gpu-2")
    settings = "/etc/ssh/sshd_config.d/00-banner.conf"
    host.check_output(
        "mv ~admin/.bashrc ~admin/.former && "
        "echo 'echo Welcome; echo Careful >&2' > ~admin/.bashrc && "
        "echo 'Authorized users only' > /run/banner && mkdir -p /etc/ssh/sshd_config.d && "
        f"echo 'Banner /run/banner' > {settings} && systemctl restart ssh"
    )
    try:
        login = [*laboratory.facts["nodes"]["gpu-2"]["ssh"], "true"]
        shown = subprocess.run(
            login, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        result = command("doctor", "-i", str(laboratory.inventory), "gpu-2", "--json")
    finally:
        host.check_output(
            f"mv ~admin/.former ~admin/.bashrc && rm {settings} /run/banner && "
            "systemctl restart ssh"
        )
    assert shown.stdout == "Welcome\n"
    assert [words in shown.stderr for words in ("Authorized users only", "Careful")] == [True] * 2
    assert result.hosts["gpu-2"]["observed"]


def test_full_disk(laboratory, command):
    """Nothing is written on the node: not even a temporary file."""
    container = laboratory.facts["nodes"]["gpu-2"]["container"]
    try:
        laboratory.host("gpu-2").check_output(FILL)
        result = command("doctor", "-i", str(laboratory.inventory), "gpu-2", "--json")
    finally:  # also if the home could not be copied, and nobody can log in
        subprocess.run(["docker", "exec", container, "sh", "-c", EMPTY], check=True)
    assert result.hosts["gpu-2"]["observed"]
