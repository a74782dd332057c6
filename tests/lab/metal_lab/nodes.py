# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes: Docker containers with systemd and sshd, joined to the control plane by their kubelets."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metal_lab import pki, registry, ubuntu
from metal_lab.control_plane import server
from metal_lab.description import UBUNTU, Node, machine
from metal_lab.host import can_lower_oom_score, cgroup_version
from metal_lab.node_templates import TEMPLATES
from metal_lab.parts import BUSYBOX, LOADED, NAMES
from metal_lab.pod_images import PAUSE_IMAGE
from metal_lab.silicon.machine import machine_json
from metal_lab.state import State

# Volumes for the engine's data: an overlay on the overlay of the node's own disk fails.
DATA = {
    "containerd": ("/var/lib/containerd",),
    "debian-containerd": ("/var/lib/containerd",),
    "docker": ("/var/lib/containerd", "/var/lib/docker", "/srv/docker"),
    "crio": ("/var/lib/containers",),
}

IMAGES = "/usr/local/lib/metal-lab/images"  # the archives that load-images finds
BEFORE = ("busybox.tar", "default-pause.tar", "pause.tar")  # of pods that run before any pull

RUNC = ("/usr/bin/runc", "/usr/sbin/runc")  # of Docker's package, or of Debian's

USER = "admin"  # an ordinary user with sudo, made by prepare-image


def docker(*words: str | Path, stdin: bytes | None = None) -> str:
    """Run a docker command. If it fails, exit with its error message."""
    command = ["docker", *(str(word) for word in words)]
    result = subprocess.run(command, check=False, input=stdin, capture_output=True)
    if result.returncode != 0:
        raise SystemExit(f"docker {words[0]} failed: {result.stderr.decode().strip()}")
    return result.stdout.decode().strip()


def _privileges() -> list[str]:
    """Return the Docker options that systemd, containerd and a kubelet need in a container."""
    if can_lower_oom_score():
        return ["--privileged"]
    return [
        "--cap-add=ALL",
        "--cap-drop=SYS_RESOURCE",
        "--security-opt=seccomp=unconfined",
        "--security-opt=apparmor=unconfined",
        "--device-cgroup-rule=a *:* rwm",
        "--device=/dev/kmsg",
    ]


def create_network(state: State) -> str:
    """Create the laboratory's network and return the address of its gateway: this machine.

    Nodes keep their addresses over reboots, which Docker supports only in a given subnet. This
    takes the first subnet that is free on this machine.
    """
    refusal = ""
    first = int(state.id[-2:], 16)
    for number in range(first, first + 256):
        subnet = f"172.30.{number % 256}"
        options = [f"--label={state.label}", f"--subnet={subnet}.0/24", f"--gateway={subnet}.1"]
        result = subprocess.run(
            ["docker", "network", "create", *options, state.id],
            check=False,
            capture_output=True,
            text=True,
        )
        if result.returncode == 0:
            return f"{subnet}.1"
        refusal = result.stderr.strip()
        if "overlaps" not in refusal:
            break
    raise SystemExit(f"docker network create failed: {refusal}")


def start(
    state: State, node: Node, number: int, image: str, images: Path, files: dict[str, bytes]
) -> str:
    """Create and boot a node. Return its address.

    `files` (keyed by path) exist before its first process starts, as on an installed machine.
    """
    container = state.container(node.name)
    options = [
        *_privileges(),
        f"--name={container}",
        f"--hostname={node.name}",
        f"--label={state.label}",
        f"--network={state.id}",
        f"--ip={_address(state.gateway, number)}",
        "--restart=unless-stopped",  # systemd ends when the node reboots: start it again
        "--cgroupns=private",
        "--env=container=docker",
        "--tmpfs=/run",
        "--tmpfs=/tmp:exec",
        *(f"--volume={path}" for path in (*DATA[node.engine], "/var/lib/kubelet")),
        # Unlike --volume, this refuses a source that does not exist.
        *(
            f"--mount=type=bind,source={images / name},target={IMAGES}/{name},readonly"
            for name in _archives(node)
        ),
        *_names(state, node),
        "--stop-signal=SIGRTMIN+3",
    ]
    if cgroup_version() == 1:
        # systemd 256 and later needs both settings to boot on the legacy hierarchy.
        options.append(
            "--env=SYSTEMD_PROC_CMDLINE="
            "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1 systemd.unified_cgroup_hierarchy=0"
        )
    docker("create", *options, image, "/usr/local/sbin/metal-lab-init")
    docker("cp", "-", f"{container}:/", stdin=_archive(files))
    docker("start", container)
    return _address(state.gateway, number)


def _archives(node: Node) -> tuple[str, ...]:
    """Return the archives of images that a node gets; an empty name is the folder with all."""
    if node.images == LOADED:
        return ("",)
    return BEFORE if node.images == BUSYBOX else ()


def _names(state: State, node: Node) -> list[str]:
    """Return the options that let a node with Docker find the registry by upstream's names.

    Docker has mirrors of docker.io alone. Its users let their network answer for the others.
    """
    if node.images != NAMES and (node.engine != "docker" or node.images == LOADED):
        return []
    return [f"--add-host={host}:{state.gateway}" for host in registry.names(state)]


def _address(gateway: str, number: int) -> str:
    """Return the address of node `number` (from 1). It stays the same over reboots."""
    return f"{gateway.rpartition('.')[0]}.{10 + number}"


def kernel_release(node: Node) -> str:
    """Return the release of a node's simulated kernel; empty if it is that of this machine."""
    return ubuntu.release(node.os) if node.os in UBUNTU else ""


def cgroup_driver(node: Node) -> str:
    """Return the cgroup driver of the engine and the kubelet of a node.

    On cgroup v1, the systemd of a node loses the groups of containers that outlive their Docker.
    """
    return "cgroupfs" if node.engine == "docker" and cgroup_version() == 1 else "systemd"


def files(
    state: State,
    node: Node,
    number: int,
    authority: pki.Authority,
    login: bytes,
) -> tuple[dict[str, bytes], bytes]:
    """Return the files of a node, keyed by path, and the public key of its sshd."""
    host_key, host_public = pki.ssh_key_pair()
    identity = authority.issue(f"system:node:{node.name}", "system:nodes")
    values = {
        "node": node,
        "pause_image": PAUSE_IMAGE,
        "cgroup_version": cgroup_version(),
        "cgroup_driver": cgroup_driver(node),
        "can_lower_oom_score": can_lower_oom_score(),
    }

    def rendered(template: str) -> bytes:
        return TEMPLATES.get_template(template).render(values).encode()

    content = {
        "etc/ssh/ssh_host_ed25519_key": host_key,
        "etc/ssh/ssh_host_ed25519_key.pub": host_public,
        f"home/{USER}/.ssh/authorized_keys": login,
        "etc/kubernetes/kubelet.conf": pki.kubeconfig(
            server(state.gateway), authority.certificate, identity
        ).encode(),
        "etc/kubernetes/pki/ca.crt": authority.certificate,
        "var/lib/kubelet/config.yaml": rendered("kubelet.yaml.j2"),
        "var/lib/kubelet/kubeadm-flags.env": b'KUBELET_KUBEADM_ARGS=""\n',
        "etc/cni/net.d/10-bridge.conflist": json.dumps(_network(number), indent=2).encode(),
        "usr/local/lib/metal-lab/machine.json": json.dumps(
            machine_json(machine(node), node.name) | {"kernel": kernel_release(node)}, indent=2
        ).encode(),
    }
    if node.engine == "containerd":
        content["etc/containerd/config.toml"] = rendered("containerd.toml.j2")
    elif node.engine == "crio":
        content["etc/crio/crio.conf.d/20-admin.conf"] = rendered("crio.conf.j2")
    elif node.engine == "debian-containerd":
        content["etc/containerd/config.toml"] = rendered("containerd1.toml.j2")
    else:
        content["etc/docker/daemon.json"] = rendered("daemon.json.j2")
        if not can_lower_oom_score():
            content["usr/local/sbin/runc"] = (
                TEMPLATES.get_template("runc.j2").render(programs=RUNC).encode()
            )
    return content, host_public


def _network(number: int) -> dict[str, Any]:
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": True,
                "ipMasq": True,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": f"10.244.{number}.0/24"}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def _archive(files: dict[str, bytes]) -> bytes:
    """Return a tar archive. Only root can read private keys. The admin owns their home folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            secret = path.endswith(("_key", ".conf")) or "authorized_keys" in path
            entry.mode = 0o600 if secret else 0o755 if "sbin/" in path else 0o644
            if path.startswith(f"home/{USER}/"):
                entry.uid = entry.gid = 1000  # the first user of a fresh Debian
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def execute(
    state: State,
    node: str,
    command: Sequence[str],
    *,
    folder: str = "/",
    stdin: bytes | None = None,
) -> str:
    """Run a command as root in a node, by `docker exec`. If it fails, exit with its message."""
    options = [f"--workdir={folder}", *(["--interactive"] if stdin is not None else [])]
    return docker("exec", *options, state.container(node), *command, stdin=stdin)


def remove_all(state: State) -> None:
    """Remove the laboratory's containers and networks."""
    containers = docker("ps", "--all", "--quiet", f"--filter=label={state.label}").split()
    if containers:
        docker("rm", "--force", "--volumes", *containers)
    networks = docker("network", "ls", "--quiet", f"--filter=label={state.label}").split()
    if networks:
        docker("network", "rm", *networks)


def running(state: State) -> set[str]:
    """Return the names of the nodes that run."""
    prefix = state.container("")
    names = docker("ps", f"--filter=label={state.label}", "--format={{.Names}}").split()
    return {name.removeprefix(prefix) for name in names}


def address(state: State, node: str) -> str:
    """Return the address of a node. If there is no such node, exit with the names of all."""
    if node not in state.nodes:
        names = ", ".join(state.nodes) or "none"
        raise SystemExit(f"no node {node!r} in laboratory {state.name!r}; its nodes: {names}")
    return state.nodes[node]


def ssh_command(state: State, node: str) -> list[str]:
    """Return the command that logs in to a node as its admin."""
    return [
        "ssh",
        "-i",
        str(state.ssh_key),
        "-o",
        f"UserKnownHostsFile={state.known_hosts}",
        f"{USER}@{address(state, node)}",
    ]


def kubectl_environment(state: State) -> dict[str, str]:
    """Return what selects the cluster for kubectl, and keeps its files out of the home folder."""
    return {
        "KUBECONFIG": str(state.kubeconfig),
        "KUBECACHEDIR": str(state.folder / "kube-cache"),
        "KUBERC": "off",
    }
