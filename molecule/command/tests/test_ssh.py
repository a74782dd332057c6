# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Logging in to the real sshd: keys, passwords, agents, jump hosts, host keys, sudo, Python."""

from __future__ import annotations

import subprocess

import pytest

FOUND, NOT_ASKED = 1, 3


@pytest.fixture
def address(laboratory):
    return laboratory.addresses["gpu-1"]


def examine(command, *words, **options):
    return command("doctor", "--json", *words, **options)


def test_key(command, address):
    result = examine(command, f"admin@{address}", "--identity", command.key)
    assert result.hosts[address]["observed"]


def test_agent(command, address, agent):
    assert examine(command, f"admin@{address}", **agent).hosts[address]["observed"]
    assert examine(command, f"admin@{address}").codes(address) == ["LOGIN_REFUSED"]


def test_wrong_key(command, address, tmp_path):
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    result = examine(command, f"admin@{address}", "--identity", other)
    [finding] = result.hosts[address]["findings"]
    assert finding["code"] == "LOGIN_REFUSED"
    assert f"the key {other}" in finding["message"]
    assert result.code == NOT_ASKED


def test_password_of_login_and_sudo(command, address, accounts):
    asked = (f"careful@{address}", "--ask-pass", "--ask-become-pass")
    result = examine(command, *asked, stdin=f"{accounts}\n{accounts}\n")
    assert result.hosts[address]["observed"], result
    wrong = examine(command, *asked, stdin=f"wrong\n{accounts}\n")
    assert wrong.codes(address) == ["LOGIN_REFUSED"]
    assert wrong.code == NOT_ASKED


def test_sudo_that_needs_a_password_or_refuses(command, address, accounts):
    key = ("--identity", command.key)
    result = examine(command, f"careful@{address}", *key)
    assert result.codes(address) == ["SUDO_REFUSED"]
    result = examine(command, f"careful@{address}", *key, "-K", stdin="wrong\n")
    assert "the password is wrong" in result.hosts[address]["findings"][0]["message"]
    result = examine(command, f"plain@{address}", *key, "-K", stdin=f"{accounts}\n")
    assert result.codes(address) == ["SUDO_REFUSED"]


def test_no_sudo_on_the_node(laboratory, command):
    address = laboratory.addresses["gpu-2"]
    container = laboratory.facts["nodes"]["gpu-2"]["container"]
    root = ["docker", "exec", container]
    subprocess.run([*root, "chmod", "0", "/usr/bin/sudo"], check=True)
    try:
        result = examine(command, f"admin@{address}", "--identity", command.key)
    finally:
        subprocess.run([*root, "chmod", "4755", "/usr/bin/sudo"], check=True)
    assert result.codes(address) == ["SUDO_REFUSED"]


def test_jump_host(laboratory, command):
    jump, target = (laboratory.addresses[node] for node in ("gpu-1", "gpu-2"))
    words = (f"admin@{target}", "--identity", command.key, "--jump", f"admin@{jump}")
    assert examine(command, *words).hosts[target]["observed"]
    log = laboratory.host("gpu-2").check_output("journalctl --unit=ssh --output=cat")
    assert f"Accepted publickey for admin from {jump} " in log


def test_jump_host_with_an_unknown_key(laboratory, command):
    jump, target = (laboratory.addresses[node] for node in ("gpu-1", "gpu-2"))
    lines = command.known_hosts.read_text().splitlines(keepends=True)
    command.known_hosts.write_text("".join(one for one in lines if not one.startswith(f"{jump} ")))
    words = (f"admin@{target}", "--identity", command.key, "--jump", f"admin@{jump}")
    [finding] = examine(command, *words).hosts[target]["findings"]
    assert finding["code"] == "HOST_KEY_UNKNOWN"
    assert jump in finding["message"]


def test_unknown_host_key_and_how_it_is_accepted(laboratory, command, address):
    command.known_hosts.write_text("")
    words = (f"admin@{address}", "--identity", command.key)
    [finding] = examine(command, *words).hosts[address]["findings"]
    assert finding["code"] == "HOST_KEY_UNKNOWN"
    own = "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"
    assert laboratory.host("gpu-1").check_output(own).split()[1] in finding["message"]
    assert examine(command, *words, "--accept-new-host-keys").hosts[address]["observed"]
    assert examine(command, *words).hosts[address]["observed"]
    listed = ["ssh-keygen", "-F", address, "-f", str(command.known_hosts)]
    assert subprocess.run(listed, check=False, stdout=subprocess.DEVNULL).returncode == 0


def test_changed_host_key_is_refused_in_spite_of_the_permission(command, address, tmp_path):
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    kind, key, _comment = other.with_name("other.pub").read_text().split()
    command.known_hosts.write_text(f"{address} {kind} {key}\n")
    before = command.known_hosts.read_bytes()
    words = (f"admin@{address}", "--identity", command.key, "--accept-new-host-keys")
    result = examine(command, *words)
    assert result.codes(address) == ["HOST_KEY_CHANGED"]
    assert result.code == NOT_ASKED
    assert command.known_hosts.read_bytes() == before


def test_no_python(laboratory, command):
    address = laboratory.addresses["gpu-2"]
    host = laboratory.host("gpu-2")
    host.check_output("chmod a-x /usr/bin/python3.*")
    try:
        result = examine(command, f"admin@{address}", "--identity", command.key)
    finally:
        host.check_output("chmod a+x /usr/bin/python3.*")
    assert result.codes(address) == ["PYTHON_MISSING"]
    assert "the node has no Python" in result.hosts[address]["findings"][0]["message"]


def test_python_that_is_too_old(laboratory, command):
    """A stand-in answers as Python 3.6 does, under the name that the inventory gives."""
    address = laboratory.addresses["gpu-2"]
    host = laboratory.host("gpu-2")
    host.check_output(
        "printf '%s\\n' '#!/bin/sh' '[ \"$2\" = -c ] && exit 1' "
        "'exec /usr/bin/python3.away -c \"import sys; sys.version_info = (3, 6, 8); "
        "exec(sys.stdin.read())\"' > /usr/local/bin/python3 && chmod 755 /usr/local/bin/python3 && "
        "cp -L /usr/bin/python3 /usr/bin/python3.away && mv /usr/bin/python3 /usr/bin/was-python3"
    )
    versions = host.check_output("ls /usr/bin/python3.*[0-9]").split()
    host.check_output(f"chmod a-x {' '.join(versions)}")
    try:
        result = examine(command, f"admin@{address}", "--identity", command.key)
    finally:
        host.check_output(
            f"chmod a+x {' '.join(versions)} && mv /usr/bin/was-python3 /usr/bin/python3 && "
            "rm /usr/local/bin/python3 /usr/bin/python3.away"
        )
    [finding] = result.hosts[address]["findings"]
    assert finding["code"] == "PYTHON_MISSING"
    assert "Python 3.6.8" in finding["message"]


def test_connection_that_is_cut_in_the_middle(laboratory, command):
    """A program that the observation runs cuts the connection. The other host is examined."""
    host = laboratory.host("gpu-2")
    cut = "pkill --signal KILL --exact 'sshd|sshd-session'"
    host.check_output(
        f"printf '%s\\n' '#!/bin/sh' \"{cut}\" > /usr/local/bin/nvidia-smi && "
        "chmod 755 /usr/local/bin/nvidia-smi"
    )
    container = laboratory.facts["nodes"]["gpu-2"]["container"]
    try:
        result = command("doctor", "--inventory", str(laboratory.inventory), "--json")
    finally:
        mend = "rm -f /usr/local/bin/nvidia-smi; systemctl restart ssh"
        subprocess.run(["docker", "exec", container, "sh", "-c", mend], check=True)
    assert result.hosts["gpu-1"]["observed"]
    assert not result.hosts["gpu-2"]["observed"]
    assert result.codes("gpu-2") in (["NODE_UNREACHABLE"], ["NODE_NOT_OBSERVED"])
