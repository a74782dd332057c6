# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages does a laboratory need, and which repository has them?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from metal_lab import (
    debian_driver,
    debs,
    kernel_packages,
    packages,
    parts,
    versions,
)
from metal_lab.cache import built, digest
from metal_lab.debs import EMPTY, SOURCES, Package
from metal_lab.description import Description
from metal_lab.host import can_lower_oom_score

# The key in `programs` of what CRI-O starts and does not build itself.
CRIO_HELPERS = "crio-helpers"


class Group(NamedTuple):
    """Packages that are built together."""

    name: str
    pool: str  # of mirror.repositories, which publishes them
    packages: tuple[Package, ...]


def groups(
    description: Description,
    programs: Mapping[str, Path],
    silicon: Callable[[str], Path],
    kernel_release: str,
) -> Iterator[Group]:
    """Yield the packages that a laboratory needs.

    `programs` has the folders of the real programs, keyed as in programs.PROGRAMS. `silicon`
    returns the folder with the stand-ins of a driver version: nvidia-smi, and libnvidia-ml, libcuda
    and libnvidia-sandboxutils with `.so.VERSION`.
    """
    wanted = description.parts
    yield Group("kubelet", "kubernetes", (packages.kubelet(programs["kubernetes"]),))
    yield Group("headers", "debian", (packages.headers(kernel_release),))
    if description.has_management_ports:
        yield Group("nvlsm", "nvidia", (packages.subnet_manager(),))
        yield Group("infiniband-diags", "debian", (packages.infiniband_diags(),))
    for suite in description.suites:
        if parts.CONTAINERD in wanted or parts.DOCKER in wanted:
            package = packages.containerd(programs["containerd"], programs["runc"], suite)
            yield Group(f"containerd-{suite}", f"docker/{suite}", (package,))
        if parts.DOCKER in wanted:
            both = packages.docker(programs["docker"], programs["docker-cli"], suite)
            plugin = packages.compose(suite)
            yield Group(f"docker-{suite}", f"docker/{suite}", (*both, plugin))
    if parts.CRI_DOCKERD in wanted:
        yield Group("cri-dockerd", "cri-dockerd", (packages.cri_dockerd(programs["cri-dockerd"]),))
    if parts.CRIO in wanted:
        package = packages.crio(
            programs["cri-o"],
            programs["runc"],
            programs[CRIO_HELPERS],
            can_lower_oom_score=can_lower_oom_score(),
        )
        yield Group("cri-o", "cri-o", (package,))
    if parts.CONTAINER_TOOLKIT in wanted:
        made = packages.toolkit(programs["container-toolkit"])
        yield Group("container-toolkit", "toolkit", tuple(made))
    if parts.DEBIAN_DRIVER in wanted:
        yield from debians_driver(silicon, kernel_release)
    for version in description.drivers:
        made = packages.driver(version, silicon(version))
        if description.kernels:
            made = kernel_packages.with_dkms(made)
        yield Group(f"driver-{version}", "nvidia", tuple(made))
    if description.kernels:
        made = kernel_packages.kernels(description.kernels)
        yield Group("kernels", "debian", tuple(made))
        yield Group("dkms", "debian", tuple(kernel_packages.dkms()))
    if parts.NFS_CLIENT in wanted:
        yield Group("nfs-client", "debian", tuple(packages.of_debian(packages.NFS_CLIENT)))
    if parts.ROOTLESS in wanted:
        yield Group("rootless", "debian", tuple(packages.of_debian(packages.ROOTLESS)))
    if parts.UPDATES in wanted:
        yield from updates(description.suites)


def debians_driver(silicon: Callable[[str], Path], kernel_release: str) -> Iterator[Group]:
    """Yield Debian's own driver, each package in its component, and the headers for it."""
    by_component = defaultdict(list)
    for package in (Package(**row) for row in debian_driver.rows(silicon)):
        by_component[debian_driver.component(package.section)].append(package)
    by_component["main"].append(packages.headers(kernel_release))
    for component, made in by_component.items():
        yield Group(f"debian-driver-{component}", f"{debian_driver.POOL}/{component}", tuple(made))


def updates(suites: Collection[str]) -> Iterator[Group]:
    """Yield empty packages that compete with the others. Holds and pins must resist them."""
    of_driver = packages.driver(versions.NEWER_DRIVER, EMPTY)
    yield Group("updates-driver", "nvidia", empty(of_driver))
    for name, pool, version in (
        ("updates-toolkit", "toolkit", versions.NEWER_CONTAINER_TOOLKIT),
        ("updates-other-toolkit", "nvidia", versions.OLDER_CONTAINER_TOOLKIT),
    ):
        yield Group(name, pool, empty(packages.toolkit(EMPTY, version)))
    for suite in suites:
        engine = (
            packages.containerd(EMPTY, EMPTY, suite, versions.NEWER_CONTAINERD),
            *packages.docker(EMPTY, EMPTY, suite, versions.NEWER_DOCKER),
        )
        yield Group(f"updates-docker-{suite}", f"docker/{suite}", empty(engine))


def empty(made: Iterable[Package]) -> tuple[Package, ...]:
    """Return packages with the same names, versions and relations, and without content."""
    names = ("binaries", "links", "files", "facts")
    nothing: dict[str, Any] = {**{name: {} for name in names}, "units": ()}
    return tuple(
        replace(one, summary="placeholder for an update", folder="empty", **nothing) for one in made
    )


def build(group: Group) -> Path:
    """Return the folder with the packages of a group. The first call builds them."""

    def build_all(out: Path) -> None:
        for package in group.packages:
            package.build(out)

    # The paths of the binaries have digests of what they were built from.
    made_by = Path(debs.__file__)
    key = digest(repr(group), SOURCES, made_by, made_by.with_name("rpms.py"))
    return built(f"packages-{group.name}", key, f"the packages of {group.name}", build_all)
