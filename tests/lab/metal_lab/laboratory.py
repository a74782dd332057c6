# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build, start, check and stop a laboratory, in the right order."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import yaml

from metal_lab import (
    control_plane,
    debian_driver,
    faults,
    mirror,
    nodes,
    packages,
    pod_images,
    programs,
)
from metal_lab.cache import CACHE, LAB_SOURCES, built, digest, give_back, locked, say
from metal_lab.description import Node, gpu_count
from metal_lab.node_image import image
from metal_lab.processes import is_alive, start, stop
from metal_lab.state import State, load
from silicon.build import build as build_silicon

MIRROR_PORT = 8080


class Parts(NamedTuple):
    """Parts that all laboratories of this machine share. The cache has them."""

    programs: Path
    images: Path
    mirror: Path
    fingerprint: str
    node_images: dict[tuple[str, str], str]  # os and engine → Docker image


def prepare(kinds: set[tuple[str, str]]) -> Parts:
    """Build the parts that the cache does not have."""
    real = programs.build()
    kernel = _kernel_release()

    def silicon(driver: str) -> Path:
        sources = LAB_SOURCES / "silicon"
        key = digest(driver, sources / "nvml", sources / "nvidia-smi", sources / "build.py")
        return built(
            f"silicon-{driver}",
            key,
            f"the stand-in for the driver's library, {driver}",
            partial(build_silicon, driver),
        )

    key = digest(
        real.name,
        kernel,
        LAB_SOURCES / "packages",
        LAB_SOURCES / "silicon",
        LAB_SOURCES / "metal_lab" / "packages.py",
        LAB_SOURCES / "metal_lab" / "debian_driver.py",
        debian_driver.RECORD,
        LAB_SOURCES / "metal_lab" / "mirror.py",
    )
    pool = built(
        "packages", key, "the packages", lambda out: packages.build(out, real, silicon, kernel)
    )
    keys = CACHE / "lab" / "gnupg"
    with locked("gnupg"):
        fingerprint = mirror.fingerprint(keys)

    def publish(out: Path) -> None:
        mirror.publish(pool, out, keys)

    return Parts(
        programs=real,
        images=pod_images.build(real),
        mirror=built("mirror", digest(pool.name, fingerprint), "the mirror", publish),
        fingerprint=fingerprint,
        node_images={kind: image(*kind, pool) for kind in sorted(kinds)},
    )


def _kernel_release() -> str:
    return subprocess.run(
        ["uname", "-r"], check=True, capture_output=True, text=True
    ).stdout.strip()


def up(name: str, description: tuple[Node, ...]) -> State:
    """Start laboratory `name`. Do nothing if it already runs as described."""
    parts = prepare({(node.os, node.engine) for node in description})
    key = digest(repr(description), repr(parts), LAB_SOURCES / "node_templates")
    state = load(name)
    if state.description == key and is_up(state):
        say(f"laboratory {name} is up already")
        return state
    down(state)
    started = time.monotonic()
    state = State(name, programs=str(parts.programs))
    state.save()
    try:
        _start(state, description, parts)
    except BaseException:
        say(f"laboratory {name} did not start; logs: {state.folder / 'logs'}")
        raise
    state.description = key
    state.save()
    give_back(state.folder.parent)
    say(f"laboratory {name} is up: {len(description)} nodes, {time.monotonic() - started:.0f} s")
    return state


def _start(state: State, description: tuple[Node, ...], parts: Parts) -> None:
    nodes.raise_inotify_limit()
    say("starting the control plane")
    state.gateway = nodes.create_network(state)
    state.save()
    logs = state.folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    authority = control_plane.write_credentials(state.folder / "pki", state.gateway)
    (state.folder / "kubeconfig").write_text(
        (state.folder / "pki" / "admin.kubeconfig").read_text()
    )
    (state.folder / "kubeconfig").chmod(0o600)
    state.processes["mirror"] = start(
        [sys.executable, "-m", "metal_lab.mirror", parts.mirror, state.gateway, str(MIRROR_PORT)],
        logs / "mirror.log",
    )
    state.save()
    control_plane.run(state, parts.programs)

    say(f"booting {', '.join(node.name for node in description)}")
    ssh = state.folder / "ssh"
    ssh.mkdir(exist_ok=True)
    private, public = nodes.ssh_key_pair()
    key_file = ssh / "id_ed25519"
    key_file.touch(mode=0o600)
    key_file.write_bytes(private)
    known_hosts = b""
    for number, node in enumerate(description, 1):
        files, host_key = nodes.files(state, node, number, authority, public)
        files |= _apt_source(state, parts)
        image_name = parts.node_images[node.os, node.engine]
        address = nodes.start(state, node, number, image_name, parts.images, files)
        state.nodes[node.name] = address
        state.save()
        known_hosts += address.encode() + b" " + host_key
    (ssh / "known_hosts").write_bytes(known_hosts)
    _write_inventory(state, description, parts)
    wait_until_ready(state)
    for node in description:
        if node.engine == "docker" and node.docker == "admin":
            nodes.run_admins_service(state, node.name)
        for fault in node.faults:
            faults.inject(state, node.name, fault, [])


def _mirror_url(state: State) -> str:
    return f"http://{state.gateway}:{MIRROR_PORT}"


def _apt_source(state: State, parts: Parts) -> dict[str, bytes]:
    """Return the apt source of a node and its key. The source is a local mirror."""
    (archive,) = (
        repository
        for repository in mirror.repositories(parts.fingerprint)
        if repository.pool == "debian"
    )
    keyring = "usr/share/keyrings/debian-mirror.asc"
    line = archive.source(_mirror_url(state), f"/{keyring}")
    return {
        keyring: (parts.mirror / archive.key).read_bytes(),
        "etc/apt/sources.list.d/debian.list": f"{line}\n".encode(),
    }


def _mirror_variables(state: State, parts: Parts) -> dict[str, str]:
    """Return the role variables that select the mirror instead of upstream."""
    url = _mirror_url(state)
    keys = {item.pool: item.key for item in mirror.repositories(parts.fingerprint)}
    variables: dict[str, str] = {}
    for role, path, key in (
        ("containerd", "docker", keys["docker/bookworm"]),
        ("docker_ce", "docker", keys["docker/bookworm"]),
        (
            "nvidia_driver",
            "nvidia/{id}{version_id}/x86_64/",
            keys["nvidia"],
        ),
        ("nvidia_container_runtime", "toolkit/stable/deb/amd64/", keys["toolkit"]),
    ):
        variables |= {
            f"{role}_repository_url": f"{url}/{path}",
            f"{role}_repository_key": f"{url}/{key}",
            f"{role}_repository_fingerprint": parts.fingerprint,
        }
    (deb,) = (parts.mirror / mirror.FILES["cri-dockerd"]).iterdir()
    checksum = hashlib.sha256(deb.read_bytes()).hexdigest()
    return variables | {
        # The versions that the laboratory can build. The roles' defaults are upstream's versions.
        "containerd_version": programs.CONTAINERD,
        "docker_ce_containerd_version": programs.CONTAINERD,
        "docker_ce_version": programs.DOCKER,
        "nvidia_container_runtime_version": programs.TOOLKIT,
        "nvidia_driver_version": packages.DRIVERS[0],
        "device_plugin_version": f"v{programs.DEVICE_PLUGIN}",
        "verify_smoke_image": pod_images.CUDA_IMAGE,
        "docker_ce_cri_dockerd_url": f"{url}/{deb.relative_to(parts.mirror)}",
        "docker_ce_cri_dockerd_checksum": f"sha256:{checksum}",
    }


def wait_until_ready(state: State, timeout_s: int = 120) -> None:
    """Wait until every node is Ready. If one is not, exit with its kubelet's log."""
    kubectl = Path(state.programs) / "kubectl"

    def wait(node: str) -> str | None:
        for condition in ("create", "condition=Ready"):
            result = subprocess.run(
                [kubectl, "wait", f"--for={condition}", f"node/{node}", f"--timeout={timeout_s}s"],
                check=False,
                env=nodes.environment(state),
                capture_output=True,
                text=True,
            )
            if result.returncode != 0:
                journal = nodes.execute(
                    state, node, ["journalctl", "-u", "kubelet", "-n", "15", "-o", "cat"]
                )
                return f"node {node} is not Ready: {result.stderr.strip()}\n{journal}"
        return None

    with ThreadPoolExecutor() as pool:
        failures = [failure for failure in pool.map(wait, state.nodes) if failure]
    if failures:
        raise SystemExit("\n".join(failures))


def is_up(state: State) -> bool:
    """Return whether all processes and all nodes of the laboratory run."""
    return (
        bool(state.processes)
        and all(is_alive(process) for process in state.processes.values())
        and nodes.running(state) == set(state.nodes)
    )


def down(state: State) -> None:
    """Remove everything. Does nothing if there is nothing. Also clears the rest of a crash."""
    stop(list(state.processes.values()))
    nodes.remove_all(state)
    state.forget()


def _write_inventory(state: State, description: tuple[Node, ...], parts: Parts) -> None:
    """Write the inventory that a user would write for these machines."""
    hosts = {
        node.name: {
            "ansible_host": state.nodes[node.name],
            "gpu_count": gpu_count(node),
            **node.vars,
        }
        for node in description
    }
    inventory = {
        "gpu_nodes": {
            "hosts": hosts,
            "vars": {
                "ansible_user": "admin",
                "ansible_ssh_private_key_file": str(state.folder / "ssh" / "id_ed25519"),
                "ansible_ssh_common_args": "-o UserKnownHostsFile="
                + str(state.folder / "ssh" / "known_hosts"),
                "ansible_ssh_pipelining": True,
                "ansible_python_interpreter": "/usr/bin/python3",
                "metal_gpu_kubeconfig": str(state.folder / "kubeconfig"),
                **_mirror_variables(state, parts),
            },
        }
    }
    header = "# Written by the laboratory. A user would write the same for real machines.\n"
    (state.folder / "inventory.yml").write_text(header + yaml.safe_dump(inventory, width=100))
