# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages do the repositories for dnf have, and what is in them?

Names, versions, relations and units of the vendors' packages are those of the records: see
records.py. Their content is that of the .deb packages. The packages of the distribution come from
recorded/redhat.yml. rpms.py builds all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from metal_lab import packages, parts
from metal_lab.debs import EMPTY
from metal_lab.description import Description
from metal_lab.groups import Group
from metal_lab.records import Subject
from metal_lab.rpms import LIBRARIES, PLUGINS, Rpm
from metal_lab.versions import CONTAINER_TOOLKIT, CONTAINERD, DOCKER, KUBERNETES

RECORD = Path(__file__).parent / "recorded" / "redhat.yml"
RECORDED: dict[str, Any] = yaml.safe_load(RECORD.read_text())
SYSTEMS: dict[str, dict[str, Any]] = RECORDED["systems"]

# Where the node image has the plugin of Debian's package, which contains all plugins of dnf.
PLUGIN = "/usr/local/lib/metal-lab/dnf/versionlock.py"

# The content of NVIDIA's packages: programs, libraries, or a folder with templates.
DRIVER: dict[str, dict[str, Any]] = {
    "nvidia-driver-cuda": {"programs": ("nvidia-smi",)},
    "nvidia-driver-cuda-libs": {"libraries": ("libcuda",)},
    "libnvidia-ml": {"libraries": ("libnvidia-ml", "libnvidia-sandboxutils")},
    "libnvidia-cfg": {},
    "nvidia-persistenced": {},
    "nvidia-modprobe": {},
    "nvidia-kmod-common": {"folder": "nvidia-kernel-support"},
    "kmod-nvidia-open-dkms": {"folder": "nvidia-kernel-dkms", "flavour": "open"},
    "kmod-nvidia-latest-dkms": {"folder": "nvidia-kernel-dkms", "flavour": "proprietary"},
}


def recorded(subject: Subject, summary: str = "", **content: Any) -> Rpm:
    """Return the package that the records describe, with this content."""
    epoch, _, rest = subject.full_version.rpartition(":")
    version, _, release = rest.rpartition("-")
    return Rpm(
        subject.name,
        version,
        summary or f"stand-in for {subject.name}",
        depends=subject.relations("depends"),
        provides=subject.relations("provides"),
        conflicts=subject.relations("conflicts"),
        obsoletes=subject.relations("obsoletes"),
        units=subject.recorded("units"),
        epoch=int(epoch or 0),
        release=release,
        arch=subject.one("architecture", "x86_64"),
        **content,
    )


def driver(version: str, silicon: Path, repository: str) -> Iterator[Rpm]:
    """Yield one driver version with both flavours of its module and the stand-in silicon."""
    for name, content in DRIVER.items():
        libraries = [f"{one}.so.{version}" for one in content.get("libraries", ())]
        yield recorded(
            Subject(name, version, (repository,)),
            binaries={
                **packages.programs(silicon, *content.get("programs", ())),
                **{f"{LIBRARIES}/{one}": silicon / one for one in libraries},
            },
            # The first library is the one that programs load.
            links={f"{LIBRARIES}/{one.partition('.so.')[0]}.so.1": one for one in libraries[:1]},
            folder=content.get("folder", ""),
            files=RECORDED["udev_rules"].get(name, {}),
            facts={"driver": version, "flavour": content.get("flavour"), "module": "nvidia"},
        )


def containerd(containerd: Path, runc: Path, repository: str) -> Rpm:
    """Return containerd as Docker packages it, with runc."""
    deb = packages.containerd(containerd, runc, "bookworm")
    return recorded(Subject(deb.name, CONTAINERD, (repository,)), binaries=deb.binaries)


def docker(engine: Path, command_line: Path, repository: str) -> Iterator[Rpm]:
    """Yield Docker's packages, which need its containerd."""
    for deb in packages.docker(engine, command_line, "bookworm"):
        yield recorded(Subject(deb.name, DOCKER, (repository,)), binaries=deb.binaries)


def toolkit(programs: Path) -> Iterator[Rpm]:
    """Yield the NVIDIA container toolkit."""
    for deb in packages.toolkit(programs):
        subject = Subject(deb.name, CONTAINER_TOOLKIT, ("toolkit-rpm",))
        yield recorded(subject, deb.summary, binaries=deb.binaries, links=deb.links)


def kubelet(programs: Path) -> Rpm:
    """Return the kubelet as Kubernetes packages it."""
    deb = packages.kubelet(programs)
    return recorded(Subject(deb.name, KUBERNETES, ("kubernetes-rpm",)), binaries=deb.binaries)


# ---------------------------------------------------------------------------------------------
# Packages of the distribution


def _of_distribution(row: Mapping[str, Any], dist: str, **content: Any) -> Rpm:
    """Return the package of a row of recorded/redhat.yml."""
    return Rpm(
        row["name"],
        row.get("version", "1"),
        f"stand-in for {row['name']}",
        depends=tuple(row.get("requires", ())),
        provides=tuple(row.get("provides", ())),
        release=row.get("release", "1").replace("DIST", dist),
        arch=row.get("arch", "x86_64"),
        **content,
    )


def _headers(kernel_release: str) -> tuple[Rpm, ...]:
    """Return the headers of the running kernel, as far as the stand-in of dkms needs them.

    Besides them, the package that brings them, and that dkms needs on a node with kernel-core.

    The kernel is that of this machine, so its release may not have the form of Red Hat's.
    """
    source = f"/usr/src/kernels/{kernel_release}"
    name = f"kernel-devel-{kernel_release}"
    matched = {
        "name": f"kernel-devel-matched-{kernel_release}",
        "requires": [name],
        "provides": ["kernel-devel-matched"],
    }
    headers = _of_distribution(
        {"name": name},
        "",
        binaries={f"{source}/Makefile": EMPTY},
        links={f"/usr/lib/modules/{kernel_release}/build": source},
    )
    return headers, _of_distribution(matched, "")


def _distribution(pool: str, system: str) -> Iterator[Rpm]:
    dist, minor = SYSTEMS[system]["dist"], SYSTEMS[system]["os_release"]["VERSION_ID"]

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(one) for one in value]
        return str(value).replace("MINOR", minor).replace("MAJOR", minor.partition(".")[0])

    for found in RECORDED["distribution"][pool]:
        row = {key: filled(value) for key, value in found.items()}
        content: dict[str, Any] = {}
        if row["name"] == "python3-dnf-plugin-versionlock":
            content = {
                "links": {f"{PLUGINS}/{PurePosixPath(PLUGIN).name}": PLUGIN},
                "binaries": {"/etc/dnf/plugins/versionlock.list": EMPTY},
            }
        yield _of_distribution(row, dist, **content)


# ---------------------------------------------------------------------------------------------
# The packages of a laboratory


def groups(
    description: Description,
    programs: Mapping[str, Path],
    silicon: Callable[[str], Path],
    kernel_release: str,
) -> Iterator[Group]:
    """Yield the packages that a laboratory with nodes of Red Hat's family needs."""
    wanted = description.parts
    if description.redhat and parts.CONTAINER_TOOLKIT in wanted:
        # One repository for all releases.
        found = tuple(toolkit(programs["container-toolkit"]))
        yield Group("container-toolkit-rpm", "toolkit-rpm", found)
    for system in description.redhat:
        dist = SYSTEMS[system]["dist"]
        number = dist.removeprefix("el")
        yield Group(f"kubelet-{dist}", f"kubernetes-{dist}", (kubelet(programs["kubernetes"]),))
        for pool in RECORDED["distribution"]:
            found = tuple(_distribution(pool, system))
            if pool == f"appstream{number}":
                found += _headers(kernel_release)
            if pool == "installed" or pool.endswith(number):
                yield Group(f"{pool}-{dist}", pool, found)
        vendor = f"docker-centos{number}"
        if parts.CONTAINERD in wanted or parts.DOCKER in wanted:
            package = containerd(programs["containerd"], programs["runc"], vendor)
            yield Group(f"containerd-{dist}", vendor, (package,))
        if parts.DOCKER in wanted:
            both = tuple(docker(programs["docker"], programs["docker-cli"], vendor))
            yield Group(f"docker-{dist}", vendor, both)
        for version in description.drivers:
            found = tuple(driver(version, silicon(version), f"rhel{number}"))
            yield Group(f"driver-{version}-{dist}", f"nvidia-rhel{number}", found)
