# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ~/.ssh/config says about a host, compared with `ssh -G` where that prints the same."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext

import pytest

from metal_gpu import Host, Settings
from metal_gpu.ssh import config_file, local_networks
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


def ssh(config, *words):
    """Return what ssh understands, by keyword; an error has no keyword."""
    command = ["ssh", "-G", "-F", config, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    pairs = [line.partition(" ")[::2] for line in done.stdout.splitlines()]
    wanted: dict[str, str] = {}
    for keyword, value in pairs:
        wanted.setdefault(keyword, value)
    return wanted | {"": done.stderr if done.returncode else ""}


@pytest.mark.parametrize("name", ["gate", "gpu-1", "plain", "included", "other", "tabs"])
def test_as_ssh_understands_it(config, name):
    wanted = ssh(config, name)
    found = resolve(Host(name, name), Settings(config_file=config))
    assert (found.user, str(found.port), found.address) == (
        wanted["user"],
        wanted["port"],
        wanted["hostname"],
    )
    assert ",".join(found.jumps) == wanted.get("proxyjump", "").replace("none", "")
    command = found.proxy_command or "none"
    assert command.startswith(wanted.get("proxycommand", "none").partition("%")[0])


def test_everything_of_a_host(home):
    found = resolve(Host("gpu-1", "gpu-1"), Settings())
    assert found.jumps == ("gate", "second:2200")
    assert found.key_files == (home / ".ssh" / "of-gpu",)
    assert (found.identities_only, found.hash_known_hosts, found.timeout_s) == (True, True, 3)
    assert found.login == "-p 2222 admin@gpu-1.example"
    plain = resolve(Host("plain", "plain"), Settings())
    assert (plain.port, plain.known_as, plain.jumps) == (2424, ("alias",), ())
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
        ("Port 22\nnonsense\n", "config, line 2: no value after nonsense"),
        ("Port\n", "line 1: no value after Port"),
        ("Port many\n", "line 1: Port is 'many', expected a number from 1 to 65535"),
        ("Port 70000\n", "line 1: Port is '70000'"),
        ("Match host\n", "line 1: Match has no value for host"),
        ("User a b\n", "line 1: user has more than one value"),
        ("User 'a\n", "line 1: the quotation marks have no end"),
        ("Include config\n", "line 1: the file includes itself"),
        ("Include more/loop\n", "loop, line 1: the file includes itself"),
        ("UserKnownHostsFile none /x\n", "line 1: none must be the only value"),
    ],
)
def test_invalid_configuration(config, text, expected):
    """As for ssh, which names the line too."""
    (config.parent / "more" / "loop").write_text("Include more/loop\n")
    config.write_text(text)
    with pytest.raises(ConfigInvalid, match=expected):
        resolve(Host("x", "x"), Settings())
    if "Include" not in text:  # ssh reads another ~/.ssh: that of the real home
        assert ssh(config, "x")[""]


def test_named_configuration_has_to_exist(tmp_path):
    with pytest.raises(ConfigInvalid, match="cannot read"):
        resolve(Host("x", "x"), Settings(config_file=tmp_path / "none"))
    (tmp_path / "own").write_text("Host x\n Port 7\n")
    found = resolve(Host("x", "x"), Settings(config_file=tmp_path / "own"))
    assert found.port == 7


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
    # Include inside a block, which counts only if the block does
    "included in a Host": "Host a\n Include {more}/nested\n HostName 1.1.1.1\nHost *\n User last\n",
    "included in another Host": "Host b\n Include {more}/nested\n Port 5\nHost *\n User last\n",
    "included in a Match": "Match host a\n Include {more}/nested\n Port 5\n",
    "included in another Match": "Match user x\n Include {more}/nested\nMatch all\n Port 5\n",
    "included in the second reading": "Match final host a\n Include {more}/nested\n Port 5\n",
    "included twice": "Host b\n Include {more}/outer\nHost a\n Include {more}/outer\n",
    "folder among the included files": "Include {more}/*\nUser yes\n",
    "proxy command before a jump host": "ProxyCommand nc x\nProxyJump g\n",
    "jump host before a proxy command": "ProxyJump g\nProxyCommand nc x\n",
    "negated criteria": "User me\nMatch !host b user me !user x\n Port 3\n",
    "user that is not set": "Match user nobody-of-this-name\n Port 3\n",
    "command": 'Match exec "test %h = a"\n Port 4\nMatch exec "test %h = b"\n User no\n',
    "command that is not run": 'Match host b exec "touch {more}/run"\n Port 4\n',
    "capital letters of a host": "Host A\n Port 4\n",
    "list in a Host": "Host b,a\n Port 4\n",
    "set of characters, which ssh has not": "Host [a]\n Port 4\n",
    "quotes": 'Host "a" c\n User "my name"\n Port \'7\'\n',
    "name of the second reading": "HostName %h.x\nMatch final all\n Port 1\nHost a.x\n User fin\n",
    "original name": "HostName %h.x\nMatch final host *.x\n Port 9\n"
    "Match originalhost a\n User o\n",
    "no host": "Match !all\n Port 9\nMatch all\n User yes\n",
}


@pytest.mark.parametrize("text", REAL.values(), ids=REAL)
def test_forms_of_the_file(config, text):
    more = config.parent / "more"
    (more / "nested").write_text("User inside\nHost b\n Port 99\nHost *\n Port 77\n")
    (more / "outer").write_text(f"Match host a\n Include {more}/nested\n")
    (more / "folder").mkdir()
    config.write_bytes(text.replace("{more}", str(more)).encode("latin-1"))
    test_as_ssh_understands_it(config, "a")
    assert not (more / "run").exists()


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (["-vJ", "g"], {"jump": "g"}),
        (["-p", "7", "-o", "Port=8"], {"port": 7}),
        (["-l", "me"], {"user": "me"}),
        (["-o", "ProxyCommand=nc x", "-o", "ProxyJump=g"], {"options": {"proxycommand": "nc x"}}),
        (["-o", "HostName=%h.x"], {"options": {"hostname": "%h.x"}}),
    ],
)
def test_options_come_before_the_file(config, words, variables):
    config.write_text(
        "ProxyJump other\nPort 99\nMatch user me\n HostName me\nMatch all\n User no\n"
    )
    wanted = ssh(config, *words, "a")
    found = resolve(Host("a", "a", **variables), Settings(config_file=config))
    assert (found.user, str(found.port), found.address, ",".join(found.jumps)) == (
        wanted["user"],
        wanted["port"],
        wanted["hostname"],
        wanted.get("proxyjump", ""),
    )
    assert (found.proxy_command or "none") == wanted.get("proxycommand", "none")


def test_no_jump_host_keeps_a_later_proxy_command_away(config):
    """As ssh_config(5) says. The versions of ssh differ.

    Run on 2026-11-27: 9.2p1-2+deb12u6 follows its manual. 9.2p1-2+deb12u10, which has
    changes of 10.3p1 about jump hosts, takes the command.
    """
    config.write_text("ProxyJump none\nProxyCommand nc x\n")
    found = resolve(Host("a", "a"), Settings(config_file=config))
    assert (found.jumps, found.proxy_command) == ((), None)


def _user(config, text, **variables):
    config.write_text(text)
    return resolve(Host("a", "a", **variables), Settings()).user


class TestCriteriaOfNewerVersions:
    """OpenSSH 9.2, which the other tests ask, refuses them."""

    @pytest.mark.parametrize(
        ("text", "user"),
        [
            ("Match tagged lab\n User no\nMatch all\n User yes\n", "yes"),
            ("Tag lab\nMatch tagged l*\n User yes\n", "yes"),
            ("Host a\n Tag lab\nMatch tagged lab,x host a\n User yes\n", "yes"),
            ("Tag other\nMatch !tagged lab\n User yes\n", "yes"),
            ('Match tagged ""\n User yes\n', "yes"),
            ("Match localnetwork 127.0.0.0/8\n User yes\n", "yes"),
            ("Match localnetwork 192.0.2.77/32,127.0.0.1/32\n User yes\n", "yes"),
            ("Match localnetwork 203.0.113.0/28\n User no\nHost a\n User yes\n", "yes"),
            ("Match !localnetwork 203.0.113.0/28\n User yes\n", "yes"),
        ],
    )
    def test_that_are_known(self, config, text, user):
        assert _user(config, text) == user

    def test_tag_of_the_command_line(self, config):
        text = "Tag no\nMatch tagged lab\n User yes\n"
        assert _user(config, text, options={"tag": "lab"}) == "yes"

    def test_networks_that_are_not_valid(self, config):
        for network in ("127.0.0.1/8", "x"):
            with pytest.raises(ConfigInvalid, match="line 1: localnetwork cannot be told"):
                _user(config, f"Match localnetwork {network}\n User no\n")

    def test_addresses_that_cannot_be_read(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            local_networks.has_address_in(["127.0.0.0/8"], tmp_path)

    def test_addresses_of_the_kernel(self, tmp_path):
        (tmp_path / "fib_trie").write_text(
            "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.1.2.0\n        /24 link UNICAST\n"
            "     |-- 10.1.2.7\n        /32 host LOCAL\n     |-- 10.1.2.255\n"
            "        /32 link BROADCAST\n"
        )
        inside = lambda network: local_networks.has_address_in([network], tmp_path)  # noqa: E731
        assert [inside("10.1.2.7/32"), inside("10.1.2.0/24")] == [True, True]
        assert [inside("10.1.2.255/32"), inside("2001:db8::/32")] == [False, False]
        line = "20010db8000000000000000000000002 04 40 00 82     eth0\n"
        (tmp_path / "if_inet6").write_text(line)
        assert inside("2001:db8::/32")

    @pytest.mark.parametrize(
        "criterion", ["sessiontype exec", "!version OpenSSH_10*", "host a command x", "new=1"]
    )
    def test_that_are_not_known_and_count(self, config, criterion):
        with pytest.raises(ConfigInvalid, match=r"config, line 2: only ssh knows the criterion"):
            _user(config, f"Port 1\nMatch {criterion}\n User no\n")

    @pytest.mark.parametrize(
        "text",
        [
            "Match sessiontype shell\n RemoteCommand tmux\nMatch all\n User yes\n",
            "User yes\nMatch sessiontype shell\n User no\n",
            "Match host b sessiontype exec\n User no\nHost *\n User yes\n",
            "Match sessiontype shell host b\n User no\nHost *\n User yes\n",
        ],
    )
    def test_that_are_not_known_and_change_nothing(self, config, text):
        assert _user(config, text) == "yes"


def test_command_of_a_match_that_does_not_end(config, monkeypatch):
    monkeypatch.setattr(config_file, "_EXEC_S", 0.2)
    with pytest.raises(ConfigInvalid, match="line 1: sleep 60 does not end within"):
        _user(config, 'Match exec "sleep 60"\n User no\n')
    with pytest.raises(ConfigInvalid, match="line 1: only ssh knows %C of test %C"):
        _user(config, 'Match exec "test %C"\n User no\n')


@pytest.mark.parametrize("value", ["none", "NONE", "/dev/null"])
def test_files_of_known_hosts_are_of_the_user_at_least(config, home, value):
    plain = resolve(Host("a", "a"), Settings())
    config.write_text(f"UserKnownHostsFile {value}\n")
    assert resolve(Host("a", "a"), Settings()).known_hosts == plain.known_hosts
    assert plain.new_keys == home / ".ssh" / "known_hosts"


@pytest.mark.parametrize("value", ["none", "NONE"])
def test_no_file_of_known_hosts_of_the_machine(config, value):
    config.write_text(f"GlobalKnownHostsFile {value}\n")
    found = resolve(Host("a", "a"), Settings())
    assert found.new_keys == found.known_hosts[0]
    assert len(found.known_hosts) == 2


def test_file_of_the_host(config, tmp_path):
    own = tmp_path / "own"
    own.write_text("Host a\n Port 7\n")
    assert resolve(Host("a", "a", config_file=str(own)), Settings()).port == 7
    config.write_text("Port 8\n")
    assert resolve(Host("a", "a", config_file="none"), Settings()).port == 22
    with pytest.raises(ConfigInvalid, match=f"cannot read {tmp_path}/none: No such file"):
        resolve(Host("a", "a", config_file=f"{tmp_path}/none"), Settings())


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
    options = {"user": "'" + user.replace("\\", r"\\") + "'"}
    for host, settings in (
        (Host("a", address, user=user), Settings()),
        (Host("a", address, options=options), Settings()),
        (Host("a", address), Settings(user=user)),
    ):
        if of_ssh.returncode == 0:
            resolve(host, settings)
            continue
        assert "invalid characters" in of_ssh.stderr
        with pytest.raises(ConfigInvalid, match="that ssh refuses"):
            resolve(host, settings)
    assert ran.exists() is (of_ssh.returncode == 0)
    if of_ssh.returncode and " " not in address and ":" not in address:
        with pytest.raises(ValueError, match=r"that ssh refuses|is not a host"):
            Host.parse(f"{user}@{address}")


@pytest.mark.parametrize(("mode", "is_used"), [(0o600, True), (0o644, True), (0o666, False)])
@pytest.mark.parametrize("name", ["config", "more/1.conf"])
def test_files_that_others_can_write_are_not_read(config, name, mode, is_used):
    """As by ssh, which says "Bad owner or permissions". One that -F names is not checked."""
    (config.parent / name).chmod(mode)
    host = Host("included", "included")
    if is_used:
        assert resolve(host, Settings()).port == 2323
    else:
        with pytest.raises(ConfigInvalid, match=r"every user may write .*, so ssh would not read"):
            resolve(host, Settings())
    own = config.with_name("own")
    own.write_text(f"Include {config.parent}/more/1.conf\n")
    own.chmod(0o666)
    by_ssh = subprocess.run(["ssh", "-G", "-F", own, "x"], capture_output=True, check=False)
    assert (by_ssh.returncode == 0) is (is_used or name == "config")
    with nullcontext() if by_ssh.returncode == 0 else pytest.raises(ConfigInvalid):
        resolve(host, Settings(config_file=own))
