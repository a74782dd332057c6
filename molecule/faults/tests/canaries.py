# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secrets that an admin's machines have, planted in the laboratory, and where they are found."""

from __future__ import annotations

import base64
import json
import secrets
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from private_mirror import PORT, READER

NODES = ("gpu-1", "gpu-2", "gpu-3")
PATTERNS = "/run/canaries"  # on the nodes: a file with everything that is looked for
_SEEN = "/run/canaries-seen"  # what the processes of a node had
_SHORTEST = 12  # characters of Base64 that tell a secret

PLACES = (
    *("mirror", "apt_auth", "registry", "registry_header", "docker_login", "pull_secret"),
    *("kubelet_proxy", "kubelet_defaults", "kubelet_header", "engine_proxy"),
    *("dockerd_flag", "dockerd_proxy", "dockerd_label", "refused_mirror", "silent_mirror"),
)


def invent() -> dict[str, str]:
    """Return a secret for each place. They look like nothing, so that only the place tells."""
    return {place: f"Ca{place.replace('_', '')}{secrets.token_hex(6)}" for place in PLACES}


def forms(secret: str) -> list[str]:
    """Return a text, and what it is a part of in Base64, wherever in there it begins."""
    encoded = (base64.b64encode(b"\0" * shift + secret.encode())[4:-4] for shift in range(3))
    return [secret, *(part.decode() for part in encoded if len(part) >= _SHORTEST)]


def shown(canaries: Mapping[str, str], text: str) -> list[str]:
    """Return the places whose secrets are in a text."""
    return [
        place for place, secret in canaries.items() if any(form in text for form in forms(secret))
    ]


class Copy(NamedTuple):
    """A file with secrets in it."""

    mode: int
    owner: str


# -------------------------------------------------------------------------------------------------
# Planting

CONTAINERD = """
[plugins."io.containerd.cri.v1.images".registry.configs."registry.example".auth]
  username = "reader"
  password = "{registry}"
"""
HOSTS = """
[host."https://registry.example".header]
  Authorization = "Bearer {registry_header}"
"""
PROXY = "http://admin:{}@127.0.0.1:9"


def plant(laboratory: Any, canaries: Mapping[str, str]) -> None:
    """Write the secrets where admins have them. Services that run read them."""
    gateway = laboratory.facts["gateway"]

    def write(node: str, path: str, text: str, *, more: bool = False) -> None:
        operator = ">>" if more else ">"
        command = f"mkdir -p $(dirname {path}); printf %s {shlex.quote(text)} {operator} {path}"
        laboratory.host(node).check_output(command)

    login = base64.b64encode(f"{READER}:{canaries['docker_login']}".encode()).decode()
    for node in NODES:
        docker_login = {"auths": {"registry.example": {"auth": login}}}
        write(node, "/root/.docker/config.json", json.dumps(docker_login))
        laboratory.host(node).check_output("chmod 600 /root/.docker/config.json")
    for node in ("gpu-1", "gpu-2"):
        write(node, "/etc/containerd/config.toml", CONTAINERD.format_map(canaries), more=True)
        laboratory.host(node).check_output("chmod 600 /etc/containerd/config.toml")
        hosts = "/etc/containerd/certs.d/registry.example/hosts.toml"
        write(node, hosts, HOSTS.format_map(canaries))

    # gpu-1: in its own apt source, and in all three files that have to be edited for the kubelet.
    source, host = "/etc/apt/sources.list.d/debian.list", laboratory.host("gpu-1")
    url = f"http://{READER}:{canaries['mirror']}@{gateway}:{PORT}"
    host.check_output(f"sed -i 's|http://{gateway}:[0-9]*|{url}|' {source}; chmod 600 {source}")
    proxy = PROXY.format(canaries["kubelet_proxy"])
    lines = f'Environment="HTTPS_PROXY={proxy}" "NO_PROXY=*"\n'
    write("gpu-1", "/etc/systemd/system/kubelet.service.d/20-gpu.conf", lines, more=True)
    defaults = f"HTTP_PROXY={PROXY.format(canaries['kubelet_defaults'])}\n"
    write("gpu-1", "/etc/default/kubelet", defaults, more=True)
    header = f"staticPodURLHeader:\n  Authorization: [Bearer {canaries['kubelet_header']}]\n"
    write("gpu-1", "/var/lib/kubelet/config.yaml", header, more=True)
    host.check_output("systemctl daemon-reload")

    # gpu-2: in a file that apt reads beside its sources, and in a drop-in of its engine.
    auth = f"machine http://{gateway}:{PORT}/ login {READER} password {canaries['apt_auth']}\n"
    write("gpu-2", "/etc/apt/auth.conf.d/mirror.conf", auth)
    host = laboratory.host("gpu-2")
    host.check_output("chmod 600 /etc/apt/auth.conf.d/mirror.conf")
    host.check_output(f"sed -i 's|http://{gateway}:[0-9]*|http://{gateway}:{PORT}|' {source}")
    proxy = PROXY.format(canaries["engine_proxy"])
    drop_in = f'[Service]\nEnvironment="HTTPS_PROXY={proxy}" "NO_PROXY=*"\n'
    write("gpu-2", "/etc/systemd/system/containerd.service.d/http-proxy.conf", drop_in)
    host.check_output("systemctl daemon-reload; systemctl restart containerd")

    # gpu-3: in a flag and in the file of Docker.
    host, path = laboratory.host("gpu-3"), "/etc/docker/daemon.json"
    settings = json.loads(host.file(path).content_string)
    settings["proxies"] = {"https-proxy": PROXY.format(canaries["dockerd_proxy"])}
    settings["labels"] = [f"registry.password={canaries['dockerd_label']}"]
    write("gpu-3", path, json.dumps(settings, indent=4) + "\n")
    host.check_output(f"chmod 600 {path}")
    flags = f"--http-proxy={PROXY.format(canaries['dockerd_flag'])} --no-proxy=*"
    unit = host.check_output("sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/docker.service")
    drop_in = f"[Service]\nExecStart=\nExecStart={unit} {flags}\n"
    write("gpu-3", "/etc/systemd/system/docker.service.d/http-proxy.conf", drop_in)
    host.check_output("systemctl daemon-reload; systemctl restart docker")

    patterns = "\n".join(form for secret in canaries.values() for form in forms(secret)) + "\n"
    for node in NODES:
        write(node, PATTERNS, patterns)


def pull_secret(canaries: Mapping[str, str]) -> str:
    """Return manifests of image pull secrets, where smoke pods and the device plugin need them."""
    login = {"username": READER, "password": canaries["pull_secret"]}
    content = json.dumps({"auths": {"registry.example": login}})
    items = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": "registry", "namespace": namespace},
            "stringData": {".dockerconfigjson": content},
        }
        for namespace in ("default", "kube-system")
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


# -------------------------------------------------------------------------------------------------
# Looking


def copies(laboratory: Any, node: str) -> dict[str, Copy]:
    """Return the files of a node with a secret in them, keyed by path.

    Journals are looked through apart; the pods' files and the images are not of this collection.
    """
    command = rf"""
        find / /tmp /run /var/lib/kubelet -xdev \
            \( -path '*/log/journal' -o -path '/var/lib/kubelet/pods' -o -path /usr \
               -o -path '/run/canaries*' \) -prune -o -type f -size -64M -print0 |
        xargs -0 grep --text --fixed-strings --files-with-matches --no-messages \
            --file={PATTERNS} | sort -u |
        xargs --no-run-if-empty --delimiter='\n' stat --format='%a %U %n'
    """
    lines = laboratory.host(node).check_output(command).splitlines()
    rows = (line.split(" ", 2) for line in lines)
    return {path: Copy(int(mode, 8), owner) for mode, owner, path in rows}


def journal(laboratory: Any, node: str, canaries: Mapping[str, str], started: str) -> list[str]:
    """Return who wrote a secret into a node's journal since then, but for the engine itself."""
    lines = laboratory.host(node).check_output(
        "journalctl --no-pager --output=json --since=@%s", started
    )
    entries = [json.loads(line) for line in lines.splitlines()]
    writers = [(str(one.get("SYSLOG_IDENTIFIER")), str(_text(one["MESSAGE"]))) for one in entries]
    assert any(writer.startswith(("ansible", "python3")) for writer, _message in writers)
    return [
        f"{writer}: {', '.join(found)}"
        for writer, message in writers
        if writer != "dockerd" and (found := shown(canaries, message))
    ]


def _text(message: Any) -> str:
    """Return a message of the journal, which is a list of bytes where it is no plain text."""
    return bytes(message).decode(errors="replace") if isinstance(message, list) else message


# Each command line is read once: a child of dockerd has dockerd's until it becomes another program.
WATCH = f"""
: > {_SEEN}
while sleep 0.2; do
    grep --text --fixed-strings --no-filename --no-messages --file={PATTERNS} \
        /proc/[0-9]*/cmdline | sed 's/\\x00.*//' >> {_SEEN}
done
"""


@contextmanager
def watched_processes(laboratory: Any, nodes: Iterable[str]) -> Iterator[dict[str, set[str]]]:
    """Look at the command lines on the nodes all the time; give the programs that had a secret."""
    seen: dict[str, set[str]] = {}
    unit = "canary-watch"
    for node in nodes:
        laboratory.host(node).check_output(
            "systemd-run --quiet --unit=%s /bin/sh -c %s", unit, WATCH
        )
    yield seen
    for node in nodes:
        host = laboratory.host(node)
        host.check_output("systemctl stop %s", unit)
        seen[node] = set(host.check_output("sort -u %s", _SEEN).splitlines())
