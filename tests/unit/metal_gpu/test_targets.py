# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ~/.ssh/config says about a host, compared with `ssh -G` where that prints the same."""

from __future__ import annotations

import subprocess

import pytest

from metal_gpu import Host, Settings
from metal_gpu.ssh.targets import ConfigInvalid, resolve

CONFIG = """
Include more/*.conf
Host gate
  HostName 10.0.0.1
Host gpu-*
  User admin
  Port 2222
  HostName %h.example
  ProxyJump gate,second:2200
  IdentityFile ~/.ssh/of-gpu
  IdentitiesOnly yes
  HashKnownHosts yes
  ConnectTimeout 3
Host plain
  HostKeyAlias alias
  UserKnownHostsFile /somewhere/a /somewhere/b
  ProxyJump none
Match final all
  User nobody-else
  Port 2424
Match final host other
  Port 2525
Host\ttabs
\tPort\t2626
\tInclude\tmore/tabs
\tHostName = 10.0.0.2
Host *
  User everybody
"""


@pytest.fixture(autouse=True)
def config(home):
    folder = home / ".ssh"
    (folder / "more").mkdir()
    (folder / "more" / "1.conf").write_text("Host included\n Port 2323\n")
    (folder / "more" / "tabs").write_text("Host tabs\n User tab\n")
    (folder / "config").write_text(CONFIG)
    return folder / "config"


@pytest.mark.parametrize("name", ["gate", "gpu-1", "plain", "included", "other", "tabs"])
def test_as_ssh_understands_it(config, name):
    printed = subprocess.run(
        ["ssh", "-G", "-F", config, name], capture_output=True, text=True, check=True
    ).stdout
    wanted = dict(line.partition(" ")[::2] for line in printed.splitlines())
    found = resolve(Host(name, name), Settings())
    assert (found.user, str(found.port), found.address) == (
        wanted["user"],
        wanted["port"],
        wanted["hostname"],
    )
    assert ",".join(found.jumps) == wanted.get("proxyjump", "").replace("none", "")


def test_everything_of_a_host(home):
    found = resolve(Host("gpu-1", "gpu-1"), Settings())
    assert found.jumps == ("gate", "second:2200")
    assert found.key_files == (home / ".ssh" / "of-gpu",)
    assert (found.identities_only, found.hash_known_hosts, found.timeout_s) == (True, True, 3)
    assert found.login == "-p 2222 admin@gpu-1.example"
    plain = resolve(Host("plain", "plain"), Settings())
    assert (plain.known_as, plain.jumps) == ("alias", ())
    assert [str(path) for path in plain.known_hosts[:2]] == ["/somewhere/a", "/somewhere/b"]


def test_precedence():
    settings = Settings(user="of-settings", port=1, key_file="/k", jump="j")
    found = resolve(Host("gpu-1", "gpu-1"), settings)
    assert (found.user, found.port, found.jumps) == ("of-settings", 1, ("j",))
    host = Host("gpu-1", "gpu-1", 2, "of-host", "/h", "h", options={"hostname": "10.9.9.9"})
    found = resolve(host, settings)
    assert (found.user, found.port, found.jumps) == ("of-host", 2, ("h",))
    assert (str(found.key_files[0]), found.address) == ("/h", "10.9.9.9")


def test_proxy_command(config):
    config.write_text("Host a\n ProxyCommand nc %h %p\nHost b\n ProxyCommand none\n")
    assert resolve(Host("a", "a"), Settings()).proxy_command == "nc a 22"
    assert resolve(Host("b", "b"), Settings()).proxy_command is None
    assert resolve(Host("a", "a", jump="gate"), Settings()).proxy_command is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Port 22\nnonsense\n", "Unparsable line nonsense"),
        ("Port many\n", "Port or ConnectTimeout of x"),
        ("Match nothing\n", "config"),
    ],
)
def test_invalid_configuration(config, text, expected):
    config.write_text(text)
    with pytest.raises(ConfigInvalid, match=expected):
        resolve(Host("x", "x"), Settings())


def test_named_configuration_has_to_exist(tmp_path):
    with pytest.raises(ConfigInvalid, match="cannot read"):
        resolve(Host("x", "x"), Settings(config_file=tmp_path / "none"))
    (tmp_path / "own").write_text("Host x\n Port 7\n")
    found = resolve(Host("x", "x"), Settings(config_file=tmp_path / "own"))
    assert found.port == 7


def test_file_that_includes_itself(config):
    config.write_text("Include config\nHost x\n Port 7\n")
    assert resolve(Host("x", "x"), Settings()).port == 7


REAL = {
    # /etc/ssh/ssh_config.d/50-redhat.conf of openssh-clients on RHEL 9 and Rocky 9
    "Red Hat": "Host a\n User admin\nMatch final all\n\tPort 77\n",
    "capital letters": "Match Host other\n User no\n ProxyJump gate\nHost *\n User yes\n",
    "equals sign": "Match host=a\n User yes\n",
    "comments": "Host a # the first\n User yes # not root\n Port 23 #x\n",
    "canonical without domains": "CanonicalizeHostname yes\nHost a\n HostName 10.1.1.1\n",
    "canonical name unknown": "CanonicalizeHostname yes\nCanonicalDomains x.invalid\n"
    "Host a\n HostName 10.1.1.1\nMatch canonical all\n User no\n",
    "canonical name": "CanonicalizeHostname yes\nCanonicalDomains x.invalid localhost\n"
    "Host a\n User yes\nMatch canonical host *.localhost\n Port 24\n",
    "not UTF-8": "# R\xe9seau\nHost a\n User yes\n",
    "tab": "Include\tmore/*.conf\nHost a\n\tUser\tyes\n",
}


@pytest.mark.parametrize("text", REAL.values(), ids=REAL)
def test_what_the_parser_of_paramiko_does_not_know(config, text):
    config.write_bytes(text.encode("latin-1"))
    test_as_ssh_understands_it(config, "a")


@pytest.mark.parametrize("criterion", ["tagged x", "localnetwork 127.0.0.0/8", "!sessiontype exec"])
def test_a_block_with_another_criterion_does_not_count(config, criterion):
    config.write_text(f"Match {criterion}\n User no\nHost *\n User yes\n")
    assert resolve(Host("a", "a"), Settings()).user == "yes"


def test_tokens_have_the_port_and_the_user_of_the_command(config, home, monkeypatch):
    monkeypatch.setenv("KEYS", "/keys")
    config.write_text(
        "Host a\n HostName %h.example\n ProxyCommand nc %h %p %r %n 100%%\n"
        " IdentityFile ${KEYS}/%r\n UserKnownHostsFile ~/%h ${KEYS}/known\n"
        " GlobalKnownHostsFile /var/lib/sss/pubconf/known_hosts\n"
    )
    found = resolve(Host("a", "a", port=2222), Settings(user="admin"))
    assert found.proxy_command == "nc a.example 2222 admin a 100%"
    assert [*map(str, found.key_files)] == ["/keys/admin"]
    files = [f"{home}/a.example", "/keys/known", "/var/lib/sss/pubconf/known_hosts"]
    assert [*map(str, found.known_hosts)] == files


@pytest.mark.parametrize(("text", "seconds"), [("2m", 120), ("1h30s", 3630), ("none", 7)])
def test_times_and_booleans_in_all_forms(config, text, seconds):
    config.write_text(f"Host a\n ConnectTimeout {text}\n IdentitiesOnly True\n")
    found = resolve(Host("a", "a"), Settings(timeout_s=7))
    assert (found.timeout_s, found.identities_only) == (seconds, True)


def test_a_time_that_is_none(config):
    config.write_text("Host a\n ConnectTimeout soon\n")
    with pytest.raises(ConfigInvalid, match="'soon' is no time"):
        resolve(Host("a", "a"), Settings())
