# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the real ssh says about a host, and what becomes of it here."""

from __future__ import annotations

import subprocess

import pytest

from metal_gpu import Host, Settings
from metal_gpu.ssh import config as asking
from metal_gpu.ssh.targets import ConfigInvalid, resolve

CONFIG = """
Host gpu-*
  User admin
  Port 2222
  HostName %h.example
  ProxyJump gate,second:2200
  IdentityFile ~/.ssh/of-gpu
  IdentitiesOnly yes
  HashKnownHosts yes
  ConnectTimeout 1m30s
Host plain
  HostKeyAlias alias
  UserKnownHostsFile /somewhere/a "/some where/b"
  GlobalKnownHostsFile /var/lib/sss/pubconf/known_hosts
  ProxyJump none
"""


@pytest.fixture(autouse=True)
def config(home):
    (home / ".ssh" / "config").write_text(CONFIG)
    return home / ".ssh" / "config"


def test_everything_of_a_host(home):
    found = resolve(Host("gpu-1", "gpu-1"), Settings())
    assert found.jumps == ("gate", "second:2200")
    assert found.key_files == (home / ".ssh" / "of-gpu",)
    assert (found.identities_only, found.hash_known_hosts, found.timeout_s) == (True, True, 90)
    assert found.known_as == ("[gpu-1.example]:2222", "gpu-1.example")
    assert found.login == "-p 2222 admin@gpu-1.example"
    plain = resolve(Host("plain", "plain"), Settings(timeout_s=7))
    assert (plain.known_as, plain.jumps, plain.timeout_s) == (("alias",), (), 7)
    assert (plain.identities_only, plain.hash_known_hosts) == (False, False)
    files = ["/somewhere/a", "/some where/b", "/var/lib/sss/pubconf/known_hosts"]
    assert [*map(str, plain.known_hosts)] == files


def test_nothing_is_said_about_a_host(home):
    found = resolve(Host("a", "2001:db8::1"), Settings())
    assert (found.address, found.port, found.jumps, found.proxy_command) == (
        *("2001:db8::1", 22, ()),
        None,
    )
    assert found.key_files == ()  # so that the keys of the agent come before the usual ones
    assert [one.name for one in found.default_keys] == ["id_ed25519", "id_ecdsa", "id_rsa"]
    assert found.new_keys == home / ".ssh" / "known_hosts"
    assert len(found.known_hosts) == 4


def test_precedence():
    settings = Settings(user="of-settings", port=1, key_file="/k", jump="j")
    found = resolve(Host("gpu-1", "gpu-1"), settings)
    assert (found.user, found.port, found.jumps) == ("of-settings", 1, ("j",))
    host = Host("gpu-1", "gpu-1", 2, "of-host", "/h", "h", options={"hostname": "10.9.9.9"})
    found = resolve(host, settings)
    assert (found.user, found.port, found.jumps) == ("of-host", 2, ("h",))
    assert (str(found.key_files[0]), found.address) == ("/h", "10.9.9.9")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        # /etc/ssh/ssh_config.d/50-redhat.conf of openssh-clients on RHEL 9 and Rocky 9
        ("Host a\n User admin\nMatch final all\n\tPort 77\n", "-p 77 admin@a"),
        ("Match user me\n HostName b\nMatch all\n Port 5\n", "-p 5 me@b"),
        ("Match originalhost a\n Include {more}\n", "-p 99 me@a"),
        ('Match exec "test %h%r = ame"\n Port 4\nMatch exec false\n Port 5\n', "-p 4 me@a"),
        ("CanonicalizeHostname yes\nMatch canonical host a\n Port 24\n", "-p 24 me@a"),
        ("RemoteCommand tmux\nRequestTTY force\nControlMaster auto\n", "me@a"),
        ("# R\xe9seau\nProxyUseFdpass yes\nGSSAPIAuthentication yes\n", "me@a"),
    ],
)
def test_ssh_reads_its_files_with_the_user_of_the_command(config, tmp_path, text, place):
    (tmp_path / "more").write_text("Port 99\n")
    config.write_bytes(text.replace("{more}", str(tmp_path / "more")).encode("latin-1"))
    user = None if "User admin" in text else "me"
    assert resolve(Host("a", "a"), Settings(user=user)).login == place


@pytest.mark.parametrize(
    ("variables", "jumps", "command"),
    [
        ({}, (), "nc a.example 22 admin a 100%"),
        ({"jump": "gate"}, ("gate",), None),
        ({"options": {"proxyjump": "none"}}, (), None),
        ({"options": {"proxycommand": "none"}}, (), None),
        ({"options": {"proxycommand": "nc x", "proxyjump": "g"}}, (), "nc x"),
        ({"config_file": "none"}, (), None),
    ],
)
def test_way_to_a_host(config, variables, jumps, command):
    config.write_text("HostName %h.example\nProxyCommand nc %h %p %r %n 100%%\n")
    if variables.get("options") == {"proxyjump": "none"}:
        config.write_text("")  # versions of ssh differ about a ProxyCommand behind it
    found = resolve(Host("a", "a", **variables), Settings(user="admin"))
    assert (found.jumps, found.proxy_command) == (jumps, command)


def test_tokens_have_the_port_and_the_user_of_the_command(config, home, monkeypatch):
    monkeypatch.setenv("KEYS", "/keys")
    config.write_text(
        "Host a\n HostName %h.example\n IdentityFile ${KEYS}/%r-%p\n IdentityFile none\n"
        " UserKnownHostsFile ${HOME}/%h ${KEYS}/known\n"
    )
    found = resolve(Host("a", "a", port=2222), Settings(user="admin"))
    assert [*map(str, found.key_files)] == ["/keys/admin-2222"]
    assert [*map(str, found.known_hosts[:2])] == [f"{home}/a.example", "/keys/known"]
    with pytest.raises(ConfigInvalid, match="only ssh knows %C"):
        resolve(Host("a", "a", key_file="/keys/%C"), Settings())


@pytest.mark.parametrize("value", ["none", "NONE", "/dev/null"])
def test_files_of_known_hosts_are_of_the_user_at_least(config, home, value):
    plain = resolve(Host("a", "a"), Settings())
    config.write_text(f"UserKnownHostsFile {value}\n")
    assert resolve(Host("a", "a"), Settings()).known_hosts == plain.known_hosts
    config.write_text(f"GlobalKnownHostsFile {value}\n")
    assert resolve(Host("a", "a"), Settings()).known_hosts == plain.known_hosts[:2]
    assert plain.new_keys == home / ".ssh" / "known_hosts"


def test_file_of_the_host(config, tmp_path):
    own = tmp_path / "own"
    own.write_text("Host a\n Port 7\n")
    assert resolve(Host("a", "a", config_file=str(own)), Settings()).port == 7
    assert resolve(Host("a", "a"), Settings(config_file=own)).port == 7
    config.write_text("Port 8\n")
    assert resolve(Host("a", "a", config_file="none"), Settings()).port == 22
    with pytest.raises(ConfigInvalid, match=f"{tmp_path}/gone: No such file"):
        resolve(Host("a", "a", config_file=f"{tmp_path}/gone"), Settings())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Port 22\nnonsense\n", "config:? line 2: "),
        ("Port 70000\n", "config:? line 1: Bad"),
        ("ConnectTimeout soon\n", "config:? line 1: "),
        ("Include {config}\n", "config:? line 1: |Too many recursive"),
    ],
)
def test_errors_are_those_of_ssh(config, text, expected):
    config.write_text(text.replace("{config}", str(config)))
    with pytest.raises(ConfigInvalid, match=expected):
        resolve(Host("x", "x"), Settings())


def test_files_that_others_can_write_are_not_read(config):
    config.chmod(0o666)
    with pytest.raises(ConfigInvalid, match="Bad owner or permissions on"):
        resolve(Host("x", "x"), Settings())


def test_computer_without_ssh(home, monkeypatch):
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(ConfigInvalid, match=r"no program ssh\. Install it: the package openssh-c"):
        resolve(Host("x", "x"), Settings())


def test_command_of_a_match_that_does_not_end(config, monkeypatch):
    monkeypatch.setattr(asking, "_LIMIT_S", 0.2)
    config.write_text('Match exec "sleep 5"\n User no\n')
    with pytest.raises(ConfigInvalid, match="`ssh -G x` does not end within"):
        resolve(Host("x", "x"), Settings())


@pytest.mark.parametrize(
    ("address", "user"),
    [
        ("gpu-1.example", "admin"),
        ("2001:db8::1", "admin"),
        ("fe80::1%eth0", "admin"),
        ("gpu-1", "CORP\\admin"),
        ("gpu-1", "first last"),
        ("gpu-1", "a$"),
        ("$(id).corp", "admin"),
        ("`id`", "admin"),
        ("a;b", "admin"),
        ("a b", "admin"),
        ("a\\b", "admin"),
        ("-oProxyCommand=x", "admin"),
        ("gpu-1", "`id`"),
        ("gpu-1", "-x"),
        ("gpu-1", "a -x"),
        ("gpu-1", "a|b"),
        ("gpu-1", "a\\"),
    ],
)
def test_names_that_a_shell_could_run_are_refused_as_by_ssh(config, address, user, tmp_path):
    """ProxyCommand and `Match exec` get them, and an inventory may come from elsewhere."""
    ran = tmp_path / "ran"
    config.write_text(f'Match exec "touch {ran}; : %n %r"\n')
    words = ["ssh", "-G", "-F", "none", "-l", user, "--", address]
    of_ssh = subprocess.run(words, capture_output=True, text=True, check=False)
    for host, settings in (
        (Host("a", address, user=user), Settings()),
        (Host("a", address), Settings(user=user)),
    ):
        if of_ssh.returncode == 0:
            found = resolve(host, settings)
            assert (found.address, found.user) == (address, user)
            continue
        assert "invalid characters" in of_ssh.stderr
        with pytest.raises(ConfigInvalid, match="that ssh refuses"):
            resolve(host, settings)
    assert ran.exists() is (of_ssh.returncode == 0)
    if of_ssh.returncode and " " not in address and ":" not in address:
        with pytest.raises(ValueError, match=r"that ssh refuses|is not a host"):
            Host.parse(f"{user}@{address}")
