# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The packages of simulated kernels, and Debian's own dkms, which builds modules for them.

dkms is real. What it calls, `make` and `sign-file`, are stand-ins: a module is a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from metal_lab.cache import built, digest
from metal_lab.debian_archive import DebianPackage
from metal_lab.debs import EMPTY, SOURCES, Package

CONFIG = SOURCES / "linux-image" / "config"
MODULES = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem")
_RELEASE = re.compile(r"(?P<series>\d+\.\d+)\.\d+-(?P<number>\d+)-(?P<flavour>[a-z0-9-]+)")


class Release(NamedTuple):
    """The parts of a release such as 6.1.0-51-amd64."""

    name: str
    series: str
    flavour: str
    version: str  # of its packages


def parse(name: str) -> Release:
    """Parse the release of a kernel. Exit if it does not have Debian's form."""
    match = _RELEASE.fullmatch(name)
    if not match:
        raise SystemExit(f"kernel {name!r} is not of the form 6.1.0-51-amd64")
    version = f"{match['series']}.{100 + int(match['number'])}-1"
    return Release(name, match["series"], match["flavour"], version)


def kernels(offered: Mapping[str, bool]) -> Iterator[Package]:
    """Yield kernels, by whether the mirror has their headers."""
    for name in offered:
        yield from image(parse(name))
    with_headers = [parse(name) for name, has_headers in offered.items() if has_headers]
    for release in with_headers:
        yield from headers(release)
    yield from map(kbuild, dict.fromkeys(release.series for release in with_headers))
    # Every archive has it. In an index without it, nobody can say that headers are missing.
    yield Package("base-files", "1-1", "older than that of the node", section="admin")


def image(release: Release) -> Iterator[Package]:
    """Yield a kernel and the version of its meta package that brings it."""
    name, folder = f"linux-image-{release.name}", f"/usr/lib/modules/{release.name}"
    lists = (f"{folder}/modules.order", f"{folder}/modules.builtin")
    yield Package(
        name,
        release.version,
        "stand-in for a kernel",
        section="kernel",
        depends=("kmod", "linux-base", "initramfs-tools"),
        binaries={
            f"/boot/vmlinuz-{release.name}": EMPTY,
            f"/boot/config-{release.name}": CONFIG,
            **dict.fromkeys((*lists, f"{folder}/modules.builtin.modinfo"), EMPTY),
        },
        folder="linux-image",
        facts={"release": release.name},
    )
    yield _meta("linux-image", name, release)


def headers(release: Release) -> Iterator[Package]:
    """Yield the headers of a kernel and the version of their meta package that brings them."""
    name, source = f"linux-headers-{release.name}", f"/usr/src/linux-headers-{release.name}"
    yield Package(
        name,
        release.version,
        "placeholder for headers: no module is compiled",
        section="kernel",
        depends=(f"linux-kbuild-{release.series}",),
        binaries=dict.fromkeys(
            (f"{source}/Makefile", f"{source}/include/generated/autoconf.h"), EMPTY
        ),
        links={f"/usr/lib/modules/{release.name}/build": source},
        folder="linux-headers",
        facts={"release": release.name},
    )
    yield _meta("linux-headers", name, release)


def _meta(prefix: str, brings: str, release: Release) -> Package:
    return Package(
        f"{prefix}-{release.flavour}",
        release.version,
        "meta package of a kernel",
        section="kernel",
        depends=(f"{brings} (= {release.version})",),
        folder="empty",
    )


def kbuild(series: str) -> Package:
    """Return the programs of the kernel's build, of which DKMS needs sign-file."""
    program = "/usr/lib/metal-lab/bin/sign-file"
    return Package(
        f"linux-kbuild-{series}",
        f"{series}.1-1",
        "stand-in for the programs of the kernel's build",
        section="kernel",
        links={f"/usr/lib/linux-kbuild-{series}/scripts/sign-file": program},
        folder="linux-kbuild",
    )


def dkms() -> Iterator[Package]:
    """Yield Debian's dkms, and stand-ins or placeholders for what it depends on."""
    yield DebianPackage("dkms", "of the archive", "Debian's own")
    yield Package("make", "4.3-4.1", "stand-in for make", section="devel")
    yield Package("gcc", "4:12.2.0-3", "stand-in for a compiler", section="devel")
    yield Package("libc6-dev", "2.36-9+deb12u10", "stand-in for headers", section="libdevel")
    for name, version in (("dpkg-dev", "1.21.22"), ("patch", "2.7.6-7"), ("lsb-release", "12.0-1")):
        yield Package(name, version, "placeholder, which dkms needs", folder="empty")


def with_dkms(made: Iterable[Package]) -> Iterator[Package]:
    """Yield the packages of a driver, of which those with a module leave its build to dkms."""
    for package in made:
        if package.source_folder != "nvidia-kernel-dkms":
            yield package
            continue
        driver, flavour = package.facts["driver"], package.facts["flavour"]
        folder = source(driver, flavour)
        place = f"/usr/src/nvidia-{driver}"
        yield replace(
            package,
            depends=(*package.depends, "dkms"),
            folder="nvidia-dkms",
            binaries={f"{place}/{file.name}": file for file in sorted(folder.iterdir())},
        )


def source(driver: str, flavour: str) -> Path:
    """Return a folder with the source of the modules, and dkms.conf."""
    texts = source_texts(driver, flavour)

    def build(out: Path) -> None:
        for name, text in texts.items():
            (out / name).write_text(text)

    what = f"the source of the {flavour} modules of driver {driver}"
    return built(f"nvidia-source-{flavour}-{driver}", digest(repr(texts)), what, build)


def source_texts(driver: str, flavour: str) -> dict[str, str]:
    """Return the source of the modules by name. Each is the text module of its name."""
    settings = [
        'PACKAGE_NAME="nvidia"',
        f'PACKAGE_VERSION="{driver}"',
        'AUTOINSTALL="yes"',
        "MAKE[0]=\"'make' KERNEL_UNAME=${kernelver} modules\"",
        "CLEAN=\"'make' clean\"",
    ]
    for number, module in enumerate(MODULES):
        settings += [
            f'BUILT_MODULE_NAME[{number}]="{module}"',
            f'DEST_MODULE_LOCATION[{number}]="/updates/dkms"',
            f'STRIP[{number}]="no"',
        ]
    text = f"version={driver}\nflavour={flavour}\n"
    return {
        "dkms.conf": "".join(f"{line}\n" for line in settings),
        **{f"{module}.text": text for module in MODULES},
    }
