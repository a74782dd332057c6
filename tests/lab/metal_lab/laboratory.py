# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build, start, check and stop a laboratory, in the right order."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from metal_lab import (
    control_plane,
    cuda_programs,
    debian_archive,
    facts,
    faults,
    groups,
    host,
    kernels,
    keys,
    mirror,
    mirror_service,
    mirror_tools,
    needs,
    node_image,
    nodes,
    parts,
    pki,
    pod_images,
    programs,
    records,
    registry,
    registry_content,
    rpm_mirror,
    rpm_packages,
    runfiles,
    scenes,
    ubuntu,
)
from metal_lab.cache import CACHE, FILES, built, digest, give_back, locked, say
from metal_lab.description import REDHAT, SUITES, UBUNTU, Description, Node
from metal_lab.processes import is_alive, stop
from metal_lab.silicon.build import build as build_silicon
from metal_lab.state import State, load

SILICON = Path(__file__).parent / "silicon"


class Built(NamedTuple):
    """What a laboratory needs from the cache, which all laboratories of this machine share."""

    programs: Path  # of the control plane, and kubectl
    images: Path
    registry: Path | None  # folder of its program
    registry_content: Path | None
    mirror: Path
    fingerprint: str
    node_images: dict[tuple[str, str], str]  # os and engine → Docker image
    mirror_tools: Path | None = None  # programs that fill a mirror


def prepare(description: Description) -> Built:
    """Build what the cache does not have, and nothing that this laboratory does not need."""
    needs.check()
    nodes.docker("version")  # exits if the engine does not answer, before anything is built
    kinds = sorted({(node.os, node.engine) for node in description.nodes})
    with ThreadPoolExecutor(2) as pool:
        # debootstrap mostly waits for the network and the disk, while go keeps the cores busy.
        bases = {kind: pool.submit(node_image.base, *kind) for kind in kinds}
        real = {name: programs.build(name) for name in parts.programs(description.parts)}
        if parts.CRIO in description.parts:
            paths = {name: f"/usr/bin/{name}" for name in ("crun", "conmon")}
            real[groups.CRIO_HELPERS] = debian_archive.programs("trixie", **paths)
    needed = (description, real, _silicon, _kernel_release())
    wanted = (
        *groups.groups(*needed),
        *rpm_packages.groups(*needed),
        *ubuntu.groups(description, _silicon),
        *runfiles.groups(description, _silicon),
    )
    folders = {group.name: (group.pool, groups.build(group)) for group in wanted}
    pools: defaultdict[str, list[Path]] = defaultdict(list)
    for pool_name, folder in folders.values():
        pools[pool_name].append(folder)
    gpg_home = CACHE / "built" / "gnupg"
    with locked("gnupg"):
        fingerprint = mirror.fingerprint(gpg_home)
    names = (f"{pool_name}/{folder.name}" for pool_name, folder in sorted(folders.values()))
    modules = (mirror, rpm_mirror, keys, ubuntu)
    made_by = (Path(str(module.__file__)) for module in modules)
    made_of = (rpm_packages.RECORD, records.FOLDER, *ubuntu.RECORDS.values())
    key = digest(*names, fingerprint, *made_by, *made_of)
    publish = partial(mirror.publish, pools, gpg_home=gpg_home)

    def of_node(system: str, engine: str) -> list[Path]:
        if system in REDHAT:
            dist = rpm_packages.SYSTEMS[system]["dist"]
            return [folders[f"{name}-{dist}"][1] for name in ("installed", "containerd", "kubelet")]
        suite = {**SUITES, **UBUNTU}[system]
        of_engine = {
            "containerd": [f"containerd-{suite}"],
            "docker": ["cri-dockerd"],
            "crio": ["cri-o"],
        }
        of_system = [ubuntu.installed(system)] if system in UBUNTU else []
        return [folders[name][1] for name in (*of_engine.get(engine, ()), "kubelet", *of_system)]

    images = pod_images.build(real.get("device-plugin"))
    program = real.get(registry.NAME)
    return Built(
        programs=real["kubernetes"],
        images=images,
        registry=program,
        registry_content=registry_content.build(program, images) if program else None,
        mirror=built("mirror", key, "the mirror", publish),
        fingerprint=fingerprint,
        node_images={
            kind: node_image.image(*kind, bases[kind].result(), of_node(*kind)) for kind in kinds
        },
        mirror_tools=mirror_tools.build(description)
        if parts.MIRROR_TOOLS in description.parts
        else None,
    )


def _silicon(driver: str) -> Path:
    """Return the folder with the stand-ins for the libraries and nvidia-smi of a driver."""
    sources = (SILICON / "nvml", SILICON / "nvidia-smi", SILICON / "build.py")
    key = digest(driver, *sources, cuda_programs.RECORD, Path(cuda_programs.__file__))
    what = f"the stand-in for the driver's libraries, {driver}"
    return built(f"silicon-{driver}", key, what, partial(build_silicon, driver))


def _kernel_release() -> str:
    return subprocess.run(
        ["uname", "-r"], check=True, capture_output=True, text=True
    ).stdout.strip()


def up(name: str, description: Description) -> State:
    """Start laboratory `name`. Do nothing if it already runs as described."""
    made = prepare(description)
    inputs = [FILES / "node_templates", description.inventory]
    if description.scenes:
        inputs.append(description.scenes)
    key = digest(repr(description), repr(made), *inputs)
    state = load(name)
    if state.description == key and is_up(state):
        say(f"laboratory {name} is up already")
        return state
    down(state)
    started = time.monotonic()
    state = State(name, programs=str(made.programs), scenes=str(description.scenes or ""))
    state.save()
    try:
        _start(state, description, made)
    except BaseException:
        say(f"laboratory {name} did not start; logs: {state.folder / 'logs'}")
        raise
    state.description = key
    state.save()
    give_back(state.folder.parent)
    count = len(description.nodes)
    say(f"laboratory {name} is up: {count} nodes, {time.monotonic() - started:.0f} s")
    return state


def _start(state: State, description: Description, made: Built) -> None:
    host.raise_inotify_limit()
    say("starting the control plane")
    state.gateway = nodes.create_network(state)
    state.save()
    logs = state.folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    authority = control_plane.write_credentials(state.folder / "pki", state.gateway)
    state.kubeconfig.write_text((state.folder / "pki" / "admin.kubeconfig").read_text())
    state.kubeconfig.chmod(0o600)
    state.mirror = str(made.mirror)
    mirror_service.run(state)
    if made.registry and made.registry_content:
        registry.run(state, made.registry, made.registry_content)
    control_plane.run(state, made.programs)

    say(f"booting {', '.join(node.name for node in description.nodes)}")
    state.ssh_key.parent.mkdir(exist_ok=True)
    private, public = pki.ssh_key_pair()
    state.ssh_key.touch(mode=0o600)
    state.ssh_key.write_bytes(private)
    known_hosts = b""
    for number, node in enumerate(description.nodes, 1):
        files, host_key = nodes.files(state, node, number, authority, public)
        files |= _sources(node)(state, made) | kernels.files(node)
        image = made.node_images[node.os, node.engine]
        address = nodes.start(state, node, number, image, made.images, files)
        state.nodes[node.name] = address
        state.save()
        known_hosts += address.encode() + b" " + host_key
    state.known_hosts.write_bytes(known_hosts)
    known = facts.collect(state, description, made.mirror, made.fingerprint, made.mirror_tools)
    state.facts.write_text(json.dumps(known, indent=2))
    state.inventory.write_text(facts.render(description.inventory, known))
    wait_until_ready(state)
    _for_each(partial(_set_up, state), description.nodes)


def _set_up(state: State, node: Node) -> None:
    """Give a node its kernel, its scenes and its faults."""
    kernels.start(state, node)
    for scene in node.scenes:
        scenes.set_up(state, node.name, scene, [])
    for fault in node.faults:
        faults.inject(state, node.name, fault, [])


def _for_each(action: Callable[[Node], None], described: tuple[Node, ...]) -> None:
    """Run an action for all nodes at once. An error of one of them is raised."""
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(action, node) for node in described]:
            done.result()


def _sources(node: Node) -> Callable[[State, Built], dict[str, bytes]]:
    if node.os in REDHAT:
        return partial(_yum_sources, system=node.os)
    return partial(_ubuntu_sources, system=node.os) if node.os in UBUNTU else _apt_source


def _apt_source(state: State, made: Built) -> dict[str, bytes]:
    """Return the apt source of a node and its key. The source is a local mirror."""
    (archive,) = (
        repository
        for repository in mirror.repositories(made.fingerprint)
        if repository.name == "debian"
    )
    keyring = "usr/share/keyrings/debian-mirror.asc"
    line = archive.source(f"http://{state.gateway}:{facts.MIRROR_PORT}", f"/{keyring}")
    return {
        keyring: (made.mirror / archive.key).read_bytes(),
        "etc/apt/sources.list.d/debian.list": f"{line}\n".encode(),
    }


def _ubuntu_sources(state: State, made: Built, system: str) -> dict[str, bytes]:
    """Return the sources of a node of Ubuntu, as its installation writes them."""
    (key,) = {
        repository.key
        for repository in mirror.repositories(made.fingerprint)
        if repository.name == ubuntu.archive_of(system)
    }
    keyring = "usr/share/keyrings/ubuntu-mirror.asc"
    address = f"http://{state.gateway}:{facts.MIRROR_PORT}"
    texts = ubuntu.sources(system, address, f"/{keyring}")
    return {
        keyring: (made.mirror / key).read_bytes(),
        **{path.lstrip("/"): text.encode() for path, text in texts.items()},
    }


def _yum_sources(state: State, made: Built, system: str) -> dict[str, bytes]:
    """Return the sources of a node of Red Hat's family: the distribution's and EPEL."""
    address = f"http://{state.gateway}:{facts.MIRROR_PORT}"
    return {
        path: content
        for repository in rpm_mirror.repositories(made.fingerprint)
        if repository.is_of(system)
        for path, content in (
            (repository.key_file, (made.mirror / repository.key).read_bytes()),
            (f"etc/yum.repos.d/{repository.file}.repo", repository.source(address).encode()),
        )
    }


def wait_until_ready(state: State, timeout_s: int = 120) -> None:
    """Wait until every node is Ready. If one is not, exit with its kubelet's log."""
    kubectl = Path(state.programs) / "kubectl"

    def wait(node: str) -> str | None:
        for condition in ("create", "condition=Ready"):
            result = subprocess.run(
                [kubectl, "wait", f"--for={condition}", f"node/{node}", f"--timeout={timeout_s}s"],
                check=False,
                env={**os.environ, **nodes.kubectl_environment(state)},
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
