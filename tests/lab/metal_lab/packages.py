# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages do the repositories for apt have, and what is in them?

Their names, versions, relations and units are those of the records: see records.py. Each call
yields what one upstream release consists of. debs.py builds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from metal_lab.debian_archive import DebianPackage
from metal_lab.debs import EMPTY, LIBRARIES, Package
from metal_lab.node_templates import TEMPLATES
from metal_lab.records import Subject
from metal_lab.versions import (
    CONTAINER_TOOLKIT,
    CONTAINERD,
    CRI_DOCKERD,
    CRIO,
    DOCKER,
    DOCKER_COMPOSE,
    KUBERNETES,
    SUBNET_MANAGER,
)

# The driver's stand-ins are in NVIDIA's repositories for both releases of Debian.
NVIDIA = ("debian12", "debian13")
# Debian 12's NFS client, and what a node lacks of its dependencies.
NFS_CLIENT = (
    *("nfs-common", "rpcbind", "keyutils", "libnfsidmap1", "libevent-core-2.1-7"),
    *("libldap-2.5-0", "libsasl2-2", "libsasl2-modules-db", "libdevmapper1.02.1", "dmsetup"),
)
# What Debian 12's docker.io needs to run without root, and a manager of a user's units.
ROOTLESS = (
    *("rootlesskit", "slirp4netns", "libslirp0", "libglib2.0-0", "uidmap", "libsubid4"),
    "libpam-systemd",
)
LIBEXEC_OF_CRIO = "/usr/libexec/crio"


def recorded(subject: Subject, summary: str, **content: Any) -> Package:
    """Return the package that the records describe, with this content."""
    return Package(
        subject.name,
        subject.full_version,
        summary,
        section=subject.one("section"),
        depends=subject.relations("depends"),
        provides=subject.relations("provides"),
        conflicts=subject.relations("conflicts"),
        replaces=subject.relations("replaces"),
        units=subject.recorded("units"),
        **content,
    )


def programs(folder: Path, *names: str) -> dict[str, Path]:
    """Return programs of a folder as the content of a package."""
    return {f"/usr/bin/{name}": folder / name for name in names}


def containerd(containerd: Path, runc: Path, suite: str, version: str = CONTAINERD) -> Package:
    """Return containerd as Docker packages it, with runc."""
    return recorded(
        Subject("containerd.io", version, (f"docker-{suite}",)),
        "open and reliable container runtime",
        binaries={
            **programs(containerd, "containerd", "containerd-shim-runc-v2", "ctr"),
            **programs(runc, "runc"),
        },
    )


def docker(
    engine: Path, command_line: Path, suite: str, version: str = DOCKER
) -> Iterator[Package]:
    """Yield Docker's packages, which need its containerd."""
    repositories = (f"docker-{suite}",)
    yield recorded(
        Subject("docker-ce", version, repositories),
        "Docker: the open-source application container engine",
        binaries=programs(engine, "dockerd", "docker-proxy"),
    )
    yield recorded(
        Subject("docker-ce-cli", version, repositories),
        "Docker CLI: the open-source application container engine",
        binaries=programs(command_line, "docker"),
    )


def compose(suite: str) -> Package:
    """Return the plugin of the command line, which upstream versions and publishes by itself."""
    return recorded(
        Subject("docker-compose-plugin", DOCKER_COMPOSE, (f"docker-{suite}",)),
        "placeholder without the plugin: the laboratory starts no compositions",
        binaries={"/usr/libexec/docker/cli-plugins/docker-compose": EMPTY},
    )


def cri_dockerd(folder: Path) -> Package:
    """Return Mirantis' package. It is a file of upstream's release, and in no repository."""
    return recorded(
        Subject("cri-dockerd", CRI_DOCKERD, ("cri-dockerd",)),
        "lightweight implementation of the CRI specification which talks to docker",
        binaries=programs(folder, "cri-dockerd"),
    )


def crio(engine: Path, runc: Path, helpers: Path, *, can_lower_oom_score: bool) -> Package:
    """Return CRI-O with its runtimes, which are in no folder of PATH.

    `helpers` has crun and conmon. Where this machine cannot lower OOM scores, each runtime is a
    script that calls the real one.
    """
    real = LIBEXEC_OF_CRIO if can_lower_oom_score else "/usr/lib/metal-lab/bin"
    runtimes = {f"{real}/crun": helpers / "crun", f"{real}/runc": runc / "runc"}
    return recorded(
        Subject("cri-o", CRIO, ("crio-deb",)),
        "implementation of the kubelet's interface for OCI runtimes",
        binaries={
            **programs(engine, "crio", "pinns"),
            f"{LIBEXEC_OF_CRIO}/conmon": helpers / "conmon",
            **runtimes,
        },
        files={}
        if can_lower_oom_score
        else {f"{LIBEXEC_OF_CRIO}/{Path(path).name}": render_runtime(path) for path in runtimes},
        # An upgrade can replace its settings, and a removal removes them.
        keeps_configuration=False,
    )


def render_runtime(path: str) -> str:
    """Return the script that raises the OOM score of a container before the runtime reads it."""
    return TEMPLATES.get_template("runc.j2").render(programs=[path])


def kubelet(folder: Path) -> Package:
    """Return the kubelet as Kubernetes packages it."""
    return recorded(
        Subject("kubelet", KUBERNETES, ("kubernetes-deb",)),
        "node agent of Kubernetes",
        binaries=programs(folder, "kubelet"),
    )


def toolkit(folder: Path, version: str = CONTAINER_TOOLKIT) -> Iterator[Package]:
    """Yield the NVIDIA container toolkit."""

    def nvidia(name: str, summary: str, **content: Any) -> Package:
        return recorded(Subject(name, version, ("toolkit-deb",)), summary, **content)

    yield nvidia(
        "nvidia-container-toolkit-base",
        "NVIDIA container runtime and CDI tools",
        binaries=programs(folder, "nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime"),
    )
    yield nvidia(
        "nvidia-container-toolkit",
        "NVIDIA container toolkit",
        binaries=programs(folder, "nvidia-container-runtime-hook"),
        links={"/usr/bin/nvidia-container-toolkit": "nvidia-container-runtime-hook"},
    )
    for name, part in (
        ("libnvidia-container-tools", "programs"),
        ("libnvidia-container1", "library"),
    ):
        yield nvidia(
            name, f"placeholder without {part}: the legacy mode is not part of the laboratory"
        )


def driver(version: str, silicon: Path) -> Iterator[Package]:
    """Yield one driver version with both flavours of its module and the stand-in silicon."""

    def nvidia(name: str, summary: str, **content: Any) -> Package:
        return recorded(Subject(name, version, NVIDIA), summary, **content)

    def library(link: str, *names: str) -> dict[str, Any]:
        files = [f"{name}.so.{version}" for name in names]
        return {
            "binaries": {f"{LIBRARIES}/{file}": silicon / file for file in files},
            "links": {f"{LIBRARIES}/{link}": files[0]},
        }

    yield nvidia(
        "libnvidia-ml1",
        "stand-in for NVIDIA's management library",
        # The second has the description of the simulated machine while the module is loaded. The
        # first reads it. nvidia-ctk mounts files of this name into containers.
        **library("libnvidia-ml.so.1", "libnvidia-ml", "libnvidia-sandboxutils"),
    )
    yield nvidia(
        "libcuda1",
        "stand-in for NVIDIA's CUDA driver library",
        **library("libcuda.so.1", "libcuda"),
    )
    smi = programs(silicon, "nvidia-smi")
    smi_is_apart = Subject("nvidia-smi", version, NVIDIA).exists
    if smi_is_apart:
        yield nvidia(
            "nvidia-smi", "stand-in for NVIDIA's system management interface", binaries=smi
        )
    yield nvidia("nvidia-modprobe", "stand-in for NVIDIA's module loader")
    yield nvidia("nvidia-persistenced", "stand-in for NVIDIA's persistence daemon")
    # It has no relation to the driver, and nobody enables or starts it.
    numbered = Subject(f"nvidia-fabricmanager-{version.partition('.')[0]}", version, NVIDIA)
    yield nvidia(
        numbered.name if numbered.exists else "nvidia-fabricmanager",
        "stand-in for NVIDIA's Fabric Manager",
        folder="nvidia-fabricmanager",
        facts={"driver": version},
    )
    yield nvidia("nvidia-kernel-support", "settings for NVIDIA's kernel module")
    yield nvidia("firmware-nvidia-gsp", "placeholder without firmware: the GPUs are simulated")
    for flavour, name in (
        ("open", "nvidia-kernel-open-dkms"),
        ("proprietary", "nvidia-kernel-dkms"),
    ):
        yield nvidia(
            name,
            f"stand-in for NVIDIA's {flavour} kernel module",
            folder="nvidia-kernel-dkms",
            facts={"driver": version, "flavour": flavour, "module": "nvidia"},
        )
    yield nvidia(
        "nvidia-driver-cuda",
        "NVIDIA driver for computing (metapackage)",
        binaries={} if smi_is_apart else smi,
    )
    # Like upstream's, these two accept a newer driver: only pinning prevents it.
    # https://forums.developer.nvidia.com/t/353805
    for name in ("nvidia-open", "cuda-drivers"):
        yield nvidia(name, "NVIDIA driver without its desktop parts (metapackage)")
    yield nvidia(
        f"nvidia-driver-pinning-{version}",
        f"keeps the NVIDIA driver at {version}",
        folder="nvidia-driver-pinning",
        facts={"driver": version},
        # Without a purge, this preference would block the version of the next pinning package.
        keeps_configuration=False,
    )


def subnet_manager() -> Package:
    """Return the subnet manager of NVLink 5, which Fabric Manager starts on some machines."""
    return recorded(
        Subject("nvlsm", SUBNET_MANAGER, NVIDIA), "stand-in for NVIDIA's NVLink Subnet Manager"
    )


def infiniband_diags() -> Package:
    """Return Debian's tools for InfiniBand, as far as Fabric Manager needs them."""
    return Package(
        "infiniband-diags", "1-1", "stand-in for ibstat: the adapters are simulated", section="net"
    )


def of_debian(names: Iterable[str]) -> Iterator[Package]:
    """Yield Debian's own packages, unchanged."""
    for name in names:
        yield DebianPackage(name, "of the archive", "Debian's own")


def headers(kernel_release: str) -> Package:
    """Return the headers of the running kernel, as far as dkms needs them."""
    source = f"/usr/src/linux-headers-{kernel_release}"
    return Package(
        f"linux-headers-{kernel_release}",
        "1-1",
        "placeholder without headers: the laboratory compiles no module",
        section="kernel",
        binaries=dict.fromkeys(
            (f"{source}/Makefile", f"{source}/include/generated/autoconf.h"), EMPTY
        ),
        links={f"/usr/lib/modules/{kernel_release}/build": source},
    )
