# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods pull with a login that nobody sees, and a registry that cannot be used changes nothing.

Nobody sees the key of a client certificate either.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

TRUST = ("ca", "client_certificate", "client_key", "username", "password")
OPTIONS = ("--diff", "-vvvv")
# Where engines, the kubelet and the role have settings.
SETTINGS = (
    "/etc/containerd /etc/docker /etc/containers /etc/crio /etc/k0s /etc/rancher"
    " /root/.docker /var/lib/metal-gpu"
)
WATCH = """
until [ -e stop ]; do
  grep --files-with-matches --fixed-strings --file=words /proc/[0-9]*/cmdline >> found 2> /dev/null
done
"""
# Lists the files in which the role could have left the key, with their mode and their user.
KEYS = (
    f"grep --recursive --files-with-matches --fixed-strings --file=/run/watch/key {SETTINGS}"
    " 2> /dev/null | xargs --no-run-if-empty stat --format='%a %U %n'"
)
HARMLESS = "metal-lab-harmless-word"
# Prints the number of a process that has the harmless word, and ends once somebody is found. It
# starts no other process, which would have the same command line for a moment.
SHOW = """
cd /run/watch
sh -c 'ulimit -t 10; until [ -s found ]; do :; done' "$(tail --lines=1 words)" & echo $!
wait
"""


def key(laboratory: Any) -> str:
    """Return a line of the key. The first one begins as with all keys of this kind."""
    return str(laboratory.facts["registry"]["client_key"].splitlines()[2])


def words(laboratory: Any) -> list[str]:
    """Return what is in each form of the login: as text, in JSON, and as base64; and of the key."""
    registry = laboratory.facts["registry"]
    start = registry["password"].partition(" ")[0]  # the rest has characters that JSON escapes
    login = f"{registry['username']}:{start}".encode()
    # Base64 of the first bytes does not depend on the rest, as long as three make a group.
    return [start, base64.b64encode(login[: len(login) // 3 * 3]).decode(), key(laboratory)]


def one_more(laboratory: Any, path: Path) -> Path:
    """Return an inventory whose nodes log in to one more registry: the mirror, with its port.

    Without the port, it is the mirror that has no login of its own in the inventory of Docker.
    k0s has logins for mirrors only.
    """
    registry = laboratory.facts["registry"]
    address = f"{registry['address']}:443"
    trust = {name: registry[name] for name in TRUST}
    of_k0s = {"host": "k0s.example", "mirrors": [{"url": f"https://{address}", **trust}]}

    def add(group: Any) -> None:
        for node, host in group["hosts"].items():
            is_k0s = "k0s" in laboratory.facts["nodes"][node]["scenes"]
            host["registries_hosts"].append(of_k0s if is_k0s else {"host": address, **trust})

    return Path(laboratory.inventory_with(path, add))


class Playbook(NamedTuple):
    """What sets up the nodes of a scenario."""

    name: str
    tags: str
    image: str  # that it pulls


@pytest.fixture(scope="module")
def playbook(laboratory: Any) -> Playbook:
    if "device-plugin" in laboratory.facts["parts"]:
        return Playbook("metal.gpu.site", "registries", "k8s-device-plugin")
    return Playbook("metal.gpu.docker_hosts", "registries,verify", "cuda-sample")


@pytest.fixture(scope="module")
def more(laboratory: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return one_more(laboratory, tmp_path_factory.mktemp("registries") / "inventory.yml")


def test_node_pulled_with_the_login(laboratory, playbook, node):
    """The engine was empty, or had an admin's busybox: its other images are from the registry."""
    assert laboratory.pulled(node, playbook.image)


def with_key(laboratory: Any, node: str) -> list[str]:
    return list(laboratory.host(node).check_output(KEYS).splitlines())


class Watched(NamedTuple):
    """What happened while each node was watched."""

    runs: dict[str, Any]  # by their purpose
    keys: dict[str, list[str]]  # the files with the key on each node, after the run that writes it


@pytest.fixture(scope="module")
def watched(laboratory: Any, playbook: Playbook, more: Path) -> Iterator[Watched]:
    """Return runs that write and remove a login and a key.

    Meanwhile, a process on each node looks at the command lines of all others.
    """
    for node in laboratory.addresses:
        host = laboratory.host(node)
        host.check_output("mkdir /run/watch")
        secret = words(laboratory)
        files = {"secret": secret, "key": [key(laboratory)], "words": [*secret, HARMLESS]}
        for name, looked_for in files.items():
            # The journal has the commands of sudo, so the words are not in them.
            text = base64.b64encode("\n".join(looked_for).encode()).decode()
            path = f"/run/watch/{name}"
            host.check_output("umask 077; echo %s | base64 --decode > %s", text, path)
        host.check_output("systemd-run --unit=watch --working-directory=/run/watch sh -c %s", WATCH)
    command = (playbook.name, f"--tags={playbook.tags}", *OPTIONS)
    runs = {
        "check": laboratory.playbook(*command, "--check", inventory=more),
        "write": laboratory.playbook(*command, inventory=more),
    }
    keys = {node: with_key(laboratory, node) for node in laboratory.addresses}
    runs["remove"] = laboratory.playbook(*command)
    yield Watched(runs, keys)
    for node in laboratory.addresses:
        laboratory.host(node).check_output("systemctl reset-failed watch; rm -r /run/watch")


def test_secrets_are_in_no_output(laboratory, watched):
    for purpose, run in watched.runs.items():
        assert run.returncode == 0, purpose
        for word in words(laboratory):
            assert word not in run.output, purpose
    for purpose in ("check", "write", "remove"):
        assert {*watched.runs[purpose].unchanged}.isdisjoint(laboratory.addresses)


def test_secrets_are_in_no_process_list(laboratory, watched, node):
    host = laboratory.host(node)
    harmless = host.check_output(SHOW)
    host.check_output("touch /run/watch/stop")
    found = {*host.check_output("cat /run/watch/found").split()}
    assert found == {f"/proc/{harmless}/cmdline"}  # else nobody has looked


def test_key_was_in_one_file_of_root_which_is_gone(laboratory, watched, node):
    (file,) = watched.keys[node]
    assert file.startswith("600 root ")
    assert with_key(laboratory, node) == []


def test_only_root_can_read_the_secrets(laboratory, watched, node):
    grep = "grep --files-with-matches --fixed-strings --file=/run/watch/secret"
    places = "/ /run /tmp /var/lib/kubelet"  # each is a file system
    # Programs of packages take long to search.
    files = f"find {places} -xdev -path /usr -prune -o -type f -print0"
    found = laboratory.host(node).run(f"{files} | xargs --null {grep}").stdout.split()
    assert found  # such as the engine's own file
    # The files of k3s are for everybody, in a folder that only root can enter.
    readable = f"cd /; runuser -u nobody -- find /etc/passwd {' '.join(found)} -perm /077"
    assert laboratory.host(node).run(readable).stdout.split() == ["/etc/passwd"]


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("down", "REGISTRY_UNREACHABLE"),
        ("wrong-password", "REGISTRY_LOGIN_REFUSED"),
        ("unknown-authority", "REGISTRY_UNTRUSTED"),
        ("expired-certificate", "REGISTRY_CERTIFICATE_EXPIRED"),
        ("client-certificate", "REGISTRY_LOGIN_REFUSED"),
    ],
)
def test_registry_that_cannot_be_used_changes_nothing(laboratory, playbook, more, fault, code):
    host = laboratory.host("gpu-2")
    digests = f"find {SETTINGS} -type f -exec sha256sum {{}} + 2> /dev/null | sort"
    before = host.run(digests).stdout
    laboratory.lab("fault", "registry", fault)
    try:
        run = laboratory.playbook(
            *(playbook.name, "--tags=registries", "--limit=gpu-2,localhost"), inventory=more
        )
    finally:
        laboratory.lab("fault", "registry", "restore")
    assert run.returncode != 0
    assert f"{code} gpu-2: " in run.words
    assert before
    assert host.run(digests).stdout == before
