# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Logging in to machines and running commands, against a server on a loopback port."""

from __future__ import annotations

import errno
import gc
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import paramiko
import pytest

from ansible_collections.metal.gpu.tests.unit.support.ssh_server import (
    Machine,
    new_key,
    plant_sudo,
)
from metal_gpu import Host, Settings
from metal_gpu.ssh import Unreachable, connect, connection, conversation, host_keys
from metal_gpu.ssh.known_hosts import fingerprint


def at(server, **more):
    return Host("node", "127.0.0.1", server.port, become=False, **more)


def finding(host, settings):
    with pytest.raises(Unreachable) as refused, connect(host, settings) as session:
        session.run("true")
    return refused.value.finding


def test_command_gets_its_input_and_returns_both_outputs(start, known, key):
    server = start(Machine(keys=[key]))
    with connect(at(server), known(server)) as session:
        answer = session.run("cat; echo wrong >&2; exit 3", b"x" * 300_000)
    assert answer == (3, b"x" * 300_000, b"wrong\n")
    assert server.machine.logins == ["admin with a key"]


def test_unknown_key_is_refused_with_its_fingerprint(start, key, host_key):
    server = start(Machine(keys=[key], password="secret"))
    found = finding(at(server), Settings(user="admin", password="secret"))
    assert found["code"] == "HOST_KEY_UNKNOWN"
    assert fingerprint(host_key.asbytes()) in found["message"]
    assert "--accept-new-host-keys" in found["remedy"]
    assert server.machine.logins == []


@pytest.mark.parametrize("is_address", [True, False])
def test_a_refusal_has_an_address_once(start, key, is_address):
    """A machine of a scan has its address as its name."""
    server = start(Machine(keys=[key]))
    address = f"[127.0.0.1]:{server.port}"
    host = replace(at(server), name=address) if is_address else at(server)
    found = finding(host, Settings(user="admin"))
    words = "the machine" if is_address else address
    assert f"{host.name}: {words} offers the " in f"{host.name}: {found['message']}"


def test_accepted_key_is_known_from_then_on(start, key, home):
    server = start(Machine(keys=[key]))
    with connect(at(server), Settings(user="admin", accept_new_host_keys=True)) as session:
        assert session.run("echo in").stdout == b"in\n"
    with connect(at(server), Settings(user="admin")) as session:
        assert session.run("echo again").stdout == b"again\n"
    assert (home / ".ssh" / "known_hosts").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("is_named", [True, False])
def test_a_key_that_this_run_accepts_permits_no_password_to_any_server(start, home, is_named):
    """In a network, any server can answer. The next run knows the key, and has its fingerprint."""
    server = start(Machine(password="secret"))
    settings = Settings(
        user="admin", password="secret", become_password="sudo", accept_new_host_keys=True
    )
    host = at(server, named=is_named)
    for _time in range(2):
        if is_named:
            with connect(host, settings) as session:
                assert session.run("true").rc == 0
        else:
            found = finding(host, settings)
            assert found["code"] == "LOGIN_REFUSED"
            assert "The password is kept back: nobody has named the machine" in found["message"]
    assert bool(server.machine.logins) is is_named
    host_keys._unproven.clear()
    with connect(host, settings) as session:
        assert session.run("true").rc == 0


@pytest.mark.parametrize("nowhere", ["none", "/dev/null"])
def test_option_that_disables_the_check_has_no_effect(start, key, home, nowhere):
    server = start(Machine(keys=[key]))
    host = at(server, options={"stricthostkeychecking": "no", "userknownhostsfile": nowhere})
    found = finding(host, Settings(user="admin"))
    assert found["code"] == "HOST_KEY_UNKNOWN"
    assert f"{home}/.ssh/known_hosts has no key" in found["message"]
    with connect(host, Settings(user="admin", accept_new_host_keys=True)) as session:
        assert session.run("echo in").stdout == b"in\n"
    with connect(host, Settings(user="admin")) as session:
        assert session.run("echo again").stdout == b"again\n"


def test_changed_key_of_an_alias_at_another_port(start, key, home, host_key, tmp_path):
    """As for ssh: an alias never gets the port, so both keys have one name."""
    server = start(Machine(keys=[key]))
    host = at(server, options={"hostkeyalias": "gpu-1"})
    with connect(host, Settings(user="admin", accept_new_host_keys=True)):
        pass
    command = ["ssh-keygen", "-l", "-f", home / ".ssh" / "known_hosts", "-F", "gpu-1"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert fingerprint(host_key.asbytes()) in found
    server.machine.host_keys = (new_key(tmp_path / "other"),)
    found = finding(host, Settings(user="admin", accept_new_host_keys=True))
    assert found["code"] == "HOST_KEY_CHANGED"


def test_configuration_of_the_host_is_that_of_its_jump_host(start, known, key, home, tmp_path):
    """As for `ssh -F FILE -J HOST`."""
    jump, server = start(Machine(keys=[key])), start(Machine(keys=[key]))
    settings = known(jump, server)
    (tmp_path / "own").write_text(
        f"UserKnownHostsFile {home}/.ssh/known_hosts\n"
        f"Host gate\n HostName 127.0.0.1\n Port {jump.port}\n"
    )
    host = at(server, jump="admin@gate", config_file=str(tmp_path / "own"))
    with connect(host, settings) as session:
        assert session.run("echo in").stdout == b"in\n"


def test_changed_key_is_refused_also_with_the_permission(start, known, key, tmp_path):
    server = start(Machine(keys=[key], password="secret"))
    settings = known(server, accept_new_host_keys=True, password="secret")
    server.machine.host_keys = (new_key(tmp_path / "other"),)
    found = finding(at(server), settings)
    assert found["code"] == "HOST_KEY_CHANGED"
    assert "in line 1" in found["message"]
    assert f"ssh-keygen -f {Settings.known_hosts or ''}".strip() in found["remedy"]
    assert server.machine.logins == []


def test_changed_key_in_a_file_of_its_own(start, key, home, tmp_path):
    """`UserKnownHostsFile ~/.ssh/known.d/%k` has a file for each machine."""
    server = start(Machine(keys=[key]))
    host = at(server, options={"hostkeyalias": "gpu-1", "userknownhostsfile": f"{home}/%k"})
    with connect(host, Settings(user="admin", accept_new_host_keys=True)):
        pass
    assert (home / "gpu-1").is_file()
    server.machine.host_keys = (new_key(tmp_path / "other"),)
    found = finding(host, Settings(user="admin", accept_new_host_keys=True))
    assert found["code"] == "HOST_KEY_CHANGED"


@pytest.mark.parametrize("is_same", [True, False])
def test_key_of_the_address_without_the_port(start, key, home, host_key, tmp_path, is_same):
    """As for ssh: it permits the same key at another port, and forbids no other one."""
    server = start(Machine(keys=[key]))
    there = host_key if is_same else new_key(tmp_path / "other")
    line = f"127.0.0.1 {there.get_name()} {there.get_base64()}\n"
    authority = f"@cert-authority * {there.get_name()} {there.get_base64()}\n"
    (home / ".ssh" / "known_hosts").write_text(f"{authority}{line}")
    if is_same:
        with connect(at(server), Settings(user="admin")) as session:
            assert session.run("echo in").stdout == b"in\n"
    else:
        assert finding(at(server), Settings(user="admin"))["code"] == "HOST_KEY_UNKNOWN"


def test_revoked_key_is_refused(start, known, key, home, host_key):
    server = start(Machine(keys=[key]))
    known(server)
    line = f"@revoked * {host_key.get_name()} {host_key.get_base64()}\n"
    with (home / ".ssh" / "known_hosts").open("a") as file:
        file.write(line)
    assert finding(at(server), Settings(user="admin"))["code"] == "HOST_KEY_CHANGED"


def test_key_of_the_known_kind_is_asked_for(start, known, key, home):
    """A machine with several keys is no changed machine."""
    rsa = paramiko.RSAKey.generate(2048)
    server = start(Machine(keys=[key]))
    settings = known(server)
    line = f"{server.place} {rsa.get_name()} {rsa.get_base64()}\n"
    (home / ".ssh" / "known_hosts").write_text(line)
    server.machine.host_keys = (*server.machine.host_keys, rsa)
    with connect(at(server), settings) as session:
        assert session.run("true").rc == 0


@pytest.mark.parametrize("keyboard", [False, True])
def test_password(start, known, keyboard):
    server = start(Machine(password="secret", keyboard=keyboard))
    with connect(at(server), known(server, password="secret")) as session:
        assert session.run("true").rc == 0


def test_wrong_password_and_wrong_key(start, known, key, tmp_path):
    server = start(Machine(keys=[new_key(tmp_path / "other")], password="secret"))
    found = finding(at(server), known(server, password="not-it"))
    assert found["code"] == "LOGIN_REFUSED"
    assert "id_ed25519, the password" in found["message"]
    assert "not-it" not in str(found)
    assert f"`ssh -p {server.port} admin@127.0.0.1`" in found["remedy"]


def test_nothing_to_offer(start, known, key, home):
    server = start(Machine(keys=[key]))
    (home / ".ssh" / "id_ed25519").unlink()
    (home / ".ssh" / "id_ed25519.pub").unlink()
    found = finding(at(server), known(server))
    assert found["message"].endswith("no key and no password to offer")


def test_key_with_a_passphrase_is_named(start, known, key, tmp_path):
    new_key(tmp_path / "locked", "passphrase")
    server = start(Machine(keys=[key]))
    found = finding(at(server, key_file=str(tmp_path / "locked")), known(server))
    assert "locked needs a passphrase" in found["message"]
    found = finding(at(server, key_file=str(tmp_path / "gone")), known(server))
    assert f"no file {tmp_path / 'gone'}" in found["message"]


def test_private_key_that_others_can_read_is_left_out(start, known, key, home):
    server = start(Machine(keys=[key]))
    (home / ".ssh" / "id_ed25519").chmod(0o640)
    assert "id_ed25519 is left out" in finding(at(server), known(server))["message"]


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """A real ssh-agent."""
    place = str(tmp_path / "agent")
    process = subprocess.Popen(
        ["ssh-agent", "-D", "-a", place], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    process.stdout.readline()  # it listens
    monkeypatch.setenv("SSH_AUTH_SOCK", place)
    yield
    process.terminate()
    process.wait()


def test_key_of_the_agent(start, known, agent, tmp_path):
    loaded = new_key(tmp_path / "loaded")
    subprocess.run(["ssh-add", "-q", tmp_path / "loaded"], check=True)
    (tmp_path / "loaded").unlink()
    server = start(Machine(keys=[loaded]))
    for named in (None, str(tmp_path / "loaded.pub")):
        with connect(at(server, key_file=named), known(server)) as session:
            assert session.run("true").rc == 0
    found = finding(at(server), known(server, use_agent=False))
    assert found["code"] == "LOGIN_REFUSED"


def test_jump_host_is_shared_and_both_keys_are_checked(start, known, key):
    jump, server = start(Machine(keys=[key])), start(Machine(keys=[key]))
    host = at(server, jump=f"admin@127.0.0.1:{jump.port}")
    settings = known(jump, server)
    with connect(host, settings) as first, connect(host, settings) as second:
        assert first.run("echo 1").stdout + second.run("echo 2").stdout == b"1\n2\n"
    assert jump.machine.forwarded == [("127.0.0.1", server.port)] * 2
    assert jump.machine.connections == 1
    assert finding(host, known(server))["code"] == "HOST_KEY_UNKNOWN"
    assert "jump host" in finding(host, known(server))["message"]
    assert finding(host, known(jump))["host"] == "node"


def test_jump_host_that_reaches_nothing(start, known, key):
    jump, server = start(Machine(keys=[key])), start(Machine(keys=[key]))
    settings = known(jump, server)
    server.stop()
    host = at(server, jump=f"admin@127.0.0.1:{jump.port}")
    assert finding(host, settings)["code"] == "NODE_UNREACHABLE"


def test_jump_host_that_does_not_answer_is_asked_once(home, known):
    """Those who wait for it do not wait for it once more, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(8) as threads:
        jump = f"admin@127.0.0.1:{silent.getsockname()[1]}"
        hosts = [Host(f"gpu-{number}", "192.0.2.1", jump=jump) for number in range(8)]
        together = threading.Barrier(8)

        def ask(host):
            together.wait()
            return finding(host, Settings(timeout_s=1))

        started = time.monotonic()
        found = [*threads.map(ask, hosts)]
        assert time.monotonic() - started < 8
    for one, host in zip(found, hosts, strict=True):
        assert one["code"] == "NODE_UNREACHABLE"
        assert one["message"].startswith(f"{host.name}, jump host 127.0.0.1: ")


def test_chain_of_jump_hosts(start, known, key):
    first, second, server = (start(Machine(keys=[key])) for _number in range(3))
    chain = ",".join(f"admin@127.0.0.1:{one.port}" for one in (first, second))
    with connect(at(server, jump=chain), known(first, second, server)) as session:
        assert session.run("echo far").stdout == b"far\n"
    assert first.machine.forwarded == [("127.0.0.1", second.port)]
    assert second.machine.forwarded == [("127.0.0.1", server.port)]


def test_proxy_command_in_a_shell(start, known, key, tmp_path):
    server = start(Machine(keys=[key]))
    program = tmp_path / "proxy"
    program.write_text(
        f"#!{sys.executable}\nimport os, socket, subprocess, sys, threading\n"
        "end = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def pump():\n while data := end.recv(9999): os.write(1, data)\n os._exit(0)\n"
        "threading.Thread(target=pump).start()\n"
        "while data := os.read(0, 9999): end.sendall(data)\n"
        "os._exit(0)\n"
    )
    program.chmod(0o755)
    host = at(server, options={"proxycommand": f"{program} %h %p 2>/dev/null"})
    with connect(host, known(server)) as session:
        assert session.run("echo through").stdout == b"through\n"


def test_hosts_of_the_configuration(start, known, key, home):
    jump, server = start(Machine(keys=[key])), start(Machine(keys=[key]))
    known(jump, server)
    (home / ".ssh" / "config").write_text(
        f"Host gate\n HostName 127.0.0.1\n Port {jump.port}\n User guard\n"
        f"Host gpu-*\n HostName 127.0.0.1\n Port {server.port}\n User admin\n ProxyJump gate\n"
    )
    with connect(Host("gpu-1", "gpu-1", become=False)) as session:
        assert session.run("true").rc == 0
    assert jump.machine.logins == ["guard with a key"]


def test_closed_connections_do_not_stay_in_memory(start, known, key):
    """Their parts refer to each other, and Python alone looks for such parts too seldom."""
    server = start(Machine(keys=[key]))
    settings = known(server)
    gc.collect()
    gc.disable()
    try:
        for _number in range(3 * connection._KEPT):
            with connect(at(server), settings):
                pass
        transports = [one for one in gc.get_objects() if type(one) is paramiko.Transport]
    finally:
        gc.enable()
    own = [one for one in transports if not one.server_mode]  # the others are of the server
    assert len(own) <= 1.5 * connection._KEPT


def test_the_configuration_of_each_jump_host_is_asked_once(start, known, key, home, tmp_path):
    """A program of `Match exec` can take seconds."""
    first, second, server = (start(Machine(keys=[key])) for _number in range(3))
    known(first, second, server)
    asked = tmp_path / "asked"
    ports = {"gate-1": first, "gate-2": second, "gpu-1": server}
    hosts = (f"Host {name}\n Port {one.port}\n" for name, one in ports.items())
    (home / ".ssh" / "config").write_text(
        f'Match exec "echo %n >> {asked}"\n User admin\n HostName 127.0.0.1\n'
        "Host gpu-1\n ProxyJump gate-2\nHost gate-2\n ProxyJump gate-1\n" + "".join(hosts)
    )
    with connect(Host("gpu-1", "gpu-1", become=False)) as session:
        assert session.run("true").rc == 0
    assert sorted(asked.read_text().split()) == sorted(ports)
    assert first.machine.forwarded == [("127.0.0.1", second.port)]


@pytest.mark.parametrize(
    "config",
    [
        "Host *\n ProxyJump gate\n",
        "Host gpu-1 second\n ProxyJump gate\nHost gpu-2 gate\n ProxyJump second\n",
    ],
)
def test_jump_host_behind_itself(home, config):
    """Nobody waits for a connection that needs itself, also if two begin at different hosts."""
    (home / ".ssh" / "config").write_text(config)
    hosts = [Host(name, name) for name in ("gpu-1", "gpu-2")]
    with ThreadPoolExecutor() as threads:
        found = [*threads.map(lambda host: finding(host, Settings()), hosts)]
    for one in found:
        assert re.search("ProxyJump: the way to|jumphost loop via", one["message"])


class TestSudo:
    @pytest.fixture
    def server(self, start, key, tmp_path):
        def run(password):
            return start(Machine(keys=[key], environment=plant_sudo(tmp_path / "bin", password)))

        return run

    def root(self, server):
        return Host("node", "127.0.0.1", server.port)

    def test_without_password(self, server, known):
        machine = server(None)
        with connect(self.root(machine), known(machine)) as session:
            assert session.run("cat", b"input").stdout == b"input"

    def test_with_password_which_is_in_no_command(self, server, known):
        machine = server("s3cret")
        with connect(self.root(machine), known(machine, become_password="s3cret")) as session:
            assert session.run("cat", b"input") == (0, b"input", b"")
        assert "s3cret" not in str(machine.machine.commands)

    def test_no_password_for_a_key_that_this_run_has_accepted(self, server, known):
        machine = server("s3cret")
        host = replace(self.root(machine), named=False)
        settings = Settings(user="admin", become_password="s3cret", accept_new_host_keys=True)
        found = finding(host, settings)
        assert found["code"] == "SUDO_REFUSED"
        assert "a password is required. The password is kept back" in found["message"]
        host_keys._unproven.clear()
        with connect(host, settings) as session:
            assert session.run("true").rc == 0

    def test_no_password_where_sudo_is_not_called(self, server, known, tmp_path):
        """A machine can print any mark that it has seen."""
        machine = server("s3cret")
        settings = known(machine, become_password="s3cret")
        with connect(replace(self.root(machine), become=False), settings) as session:
            talk = conversation.Conversation("true", root=False, password="s3cret")
            marks = [one.decode() for one in (talk._shell, talk._prompt, talk._ready)]
            assert len({one[-16:] for one in marks}) == 3
            printed = f"printf '%s\\n' {marks[0]} {marks[1]} >&2; timeout 1 cat >{tmp_path}/got"
            pipe = session.start(f"sh -c {shlex.quote(printed)}")
            with pytest.raises(conversation.NotRoot):
                talk.hold(pipe, b"", 20, 20)
            pipe.wait(2)
        assert (tmp_path / "got").read_bytes() == b""

    def test_no_password_and_a_wrong_one(self, server, known):
        machine = server("s3cret")
        found = finding(self.root(machine), known(machine))
        assert found["code"] == "SUDO_REFUSED"
        assert "a password is required" in found["message"]
        found = finding(self.root(machine), known(machine, become_password="wrong"))
        assert "the password is wrong" in found["message"]

    def test_user_who_may_not(self, server, known, tmp_path):
        machine = server(None)
        refusal = "admin is not in the sudoers file."
        (tmp_path / "bin" / "sudo").write_text(f"#!/bin/sh\necho '{refusal}' >&2; exit 1\n")
        assert refusal in finding(self.root(machine), known(machine))["message"]

    def test_sudo_that_wants_a_terminal(self, server, known, tmp_path):
        machine = server(None)
        words = "sudo: sorry, you must have a tty to run sudo"
        (tmp_path / "bin" / "sudo").write_text(f"#!/bin/sh\necho '{words}' >&2; exit 1\n")
        found = finding(self.root(machine), known(machine))
        assert found["code"] == "SUDO_NEEDS_TERMINAL"
        assert found["message"].endswith(words)

    def test_no_sudo(self, server, known, tmp_path):
        machine = server(None)
        (tmp_path / "bin" / "sudo").write_text("#!/no/such/program\n")
        assert finding(self.root(machine), known(machine))["code"] == "SUDO_REFUSED"


def test_command_that_does_not_end(start, known, key):
    server = start(Machine(keys=[key]))
    with connect(at(server), known(server)) as session, pytest.raises(Unreachable) as late:
        session.run("exec sleep 60", timeout_s=0.2)
    assert "no answer within" in late.value.finding["message"]


def test_command_that_leaves_a_process_behind(start, known, key):
    server = start(Machine(keys=[key]))
    with connect(at(server), known(server)) as session:
        assert session.run("echo done; (sleep 30 >/dev/null 2>&1) & ").stdout == b"done\n"


def test_connection_that_is_cut(start, known, key):
    server = start(Machine(keys=[key], cut_after=20_000))
    with connect(at(server), known(server)) as session:
        assert session.run("yes | head -c 100000").rc is None


def test_machine_that_runs_no_commands(start, known, key):
    server = start(Machine(keys=[key], runs_commands=False))
    assert finding(at(server), known(server))["code"] == "NODE_UNREACHABLE"


def test_machine_without_a_posix_shell(start, known, key):
    """As a switch answers, or Windows."""
    server = start(Machine(keys=[key], shell=("sh", "-c", "echo '% Invalid input'; exit 1", "sw")))
    with connect(at(server), known(server)) as session:
        assert session.run("true") == (1, b"% Invalid input\n", b"")


@pytest.fixture
def port():
    """Accept connections, and say what the test wants."""
    listening = socket.create_server(("127.0.0.1", 0))

    def say(words):
        def serve():
            with listening.accept()[0] as client:
                client.sendall(words)
                client.recv(1000)

        threading.Thread(target=serve, daemon=True).start()
        return listening.getsockname()[1]

    yield say
    listening.close()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak SSH"),
        (b"SSH-1.5-old\r\n", "Incompatible version (1.5"),
    ],
)
def test_something_else_at_the_port(port, words, expected):
    found = finding(Host("node", "127.0.0.1", port(words)), Settings(timeout_s=1))
    assert found["code"] == "NODE_UNREACHABLE"
    assert expected in found["message"]


def test_packet_that_no_server_sends(port):
    """paramiko would read it to its end, before anybody has logged in."""
    words = b"SSH-2.0-x\r\n" + (2**30 + 4).to_bytes(4, "big") + b"x" * 100
    found = finding(Host("node", "127.0.0.1", port(words)), Settings(timeout_s=5))
    assert "bytes, which no SSH server sends" in found["message"]


def test_old_algorithms_are_not_offered(start, known, key):
    """As by OpenSSH 9.2: `ssh -G x` lists what it offers."""
    server = start(Machine(keys=[key]))
    with connect(at(server), known(server)) as session:
        options = session._transport.get_security_options()
    asked = subprocess.check_output(["ssh", "-G", "-F", "none", "x"], text=True)
    offered = dict(line.split(maxsplit=1) for line in asked.splitlines() if " " in line)
    assert {*options.ciphers} <= {*offered["ciphers"].split(",")}
    assert {*options.digests} <= {*offered["macs"].split(",")}
    newer = {"mlkem768x25519-sha256"}  # OpenSSH 9.9
    assert {*options.kex} - newer <= {*offered["kexalgorithms"].split(",")}


@pytest.mark.parametrize("call", ["socket.create_connection", "select.poll", "subprocess.Popen"])
def test_too_many_open_files(start, known, key, call, monkeypatch):
    server = start(Machine(keys=[key]))

    def fail(*_words, **_named):
        raise OSError(errno.EMFILE, "Too many open files")

    is_local = call == "subprocess.Popen"
    host = Host.this_machine("here") if is_local else at(server)
    with monkeypatch.context() as patched:
        place = f"metal_gpu.ssh.{'local' if is_local else 'connection'}.{call}"
        patched.setattr(place, fail)
        found = finding(host, known(server))
    assert found["code"] == "NODE_UNREACHABLE"
    assert "run `ulimit -n 65536` before" in found["message"]


def test_silent_port(port):
    found = finding(Host("node", "127.0.0.1", port(b"")), Settings(timeout_s=0.3))
    assert found["code"] == "NODE_UNREACHABLE"


def test_known_hosts_that_cannot_be_read(start, key, home):
    server = start(Machine(keys=[key]))
    (home / ".ssh" / "known_hosts").mkdir()
    found = finding(at(server), Settings(user="admin"))
    assert found["message"].endswith("known_hosts: Is a directory")


def test_closed_port_and_unknown_name():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        closed = listening.getsockname()[1]
    found = finding(Host("node", "127.0.0.1", closed), Settings())
    assert f"127.0.0.1 port {closed}: Connection refused" in found["message"]
    for name in ("no-such-name.invalid", f"{'a' * 64}.invalid"):
        found = finding(Host("node", name), Settings())
        assert "the name cannot be resolved" in found["message"]


def test_obstacle_of_the_inventory():
    found = finding(Host("node", "127.0.0.1", obstacle="ansible_connection is winrm"), Settings())
    assert found["message"].endswith("ansible_connection is winrm")


class TestThisMachine:
    def test_command(self):
        with connect(Host.this_machine("here")) as session:
            answer = session.run("cat; echo wrong >&2; exit 3", b"x" * 300_000, sudo=False)
        assert answer == (3, b"x" * 300_000, b"wrong\n")

    def test_sudo(self, tmp_path, monkeypatch):
        for name, value in plant_sudo(tmp_path / "bin", "s3cret").items():
            monkeypatch.setenv(name, value)
        with connect(Host.this_machine("here"), Settings(become_password="s3cret")) as session:
            assert session.run("echo root").stdout == b"root\n"
        assert finding(Host.this_machine("here"), Settings())["code"] == "SUDO_REFUSED"

    def test_output_without_end(self, monkeypatch):
        monkeypatch.setattr(conversation, "_MOST", 2**20)
        with connect(Host.this_machine("here")) as session, pytest.raises(Unreachable) as endless:
            session.run("exec yes", sudo=False)
        assert "more than 1 MiB" in endless.value.finding["message"]

    def test_command_that_does_not_end_is_ended(self, tmp_path):
        with connect(Host.this_machine("here")) as session, pytest.raises(Unreachable):
            session.run(f"echo $$ > {tmp_path}/pid; exec sleep 60", timeout_s=0.2, sudo=False)
        pid = int((tmp_path / "pid").read_text())
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, 0)

    def test_login_shell_that_prints_without_end(self, monkeypatch):
        monkeypatch.setattr(conversation, "_MOST_BEFORE", 1000)
        talk = conversation.Conversation("true", root=False, password=None)
        with connect(Host.this_machine("here")) as session:
            pipe = session.start("exec yes noise")
            with pytest.raises(conversation.TooSlow, match="prints without end"):
                talk.hold(pipe, b"", 20, 20)
            session.stop(pipe)
