# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The .deb packages of the mirror: upstream's names, versions, files and relations.

A package is a row of data. Its files are `binaries` that are built elsewhere, and the templates in
its folder in files/packages. A template has the name of its result plus `.j2`:

    root/            files of the node; those in /etc are configuration files
    *.sh.j2          its part of a maintainer script; the scripts in common/ include it
    triggers.j2      dpkg triggers

The same input gives the same bytes, so that a laboratory can cache its packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from metal_lab.cache import FILES
from metal_lab.versions import CONTAINER_TOOLKIT, CONTAINERD, CRI_DOCKERD, DOCKER, KUBERNETES

SOURCES = FILES / "packages"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
EMPTY = Path(os.devnull)  # the source of an empty file
_FABRIC_RENAMED = 580  # since this branch, its name has no number
_SMI_MOVED = 595  # since this branch, nvidia-driver-cuda has nvidia-smi

RELEASES = {"bookworm": "12", "trixie": "13"}

MAINTAINER_SCRIPTS = ("postinst", "prerm", "postrm")

# Older than any file: dpkg-deb clamps the times of newer files to it.
SOURCE_DATE_EPOCH = "1577836800"

_templates = Environment(
    loader=FileSystemLoader(SOURCES),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # shell and units, not HTML
)


@dataclass(frozen=True)
class Package:
    """One binary package."""

    name: str
    version: str
    summary: str
    section: str = "utils"
    pre_depends: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    binaries: Mapping[str, Path] = field(default_factory=dict)  # keyed by path on the node
    links: Mapping[str, str] = field(default_factory=dict)  # path on the node → target
    units: tuple[str, ...] = ()  # enabled and started at installation
    folder: str = ""  # in files/packages; by default the name
    facts: Mapping[str, Any] = field(default_factory=dict)  # for its templates
    keeps_configuration: bool = True  # a removal keeps /etc, a purge does not

    @property
    def source_folder(self) -> str:
        return self.folder or self.name

    def build(self, folder: Path) -> Path:
        """Build the package into the folder."""
        return build_deb(self, folder)


def control(package: Package) -> str:
    """Return the text of the package's control file."""
    fields = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": "amd64",
        "Maintainer": "metal-lab <lab@metal-lab.invalid>",
        "Section": package.section,
        "Priority": "optional",
        "Pre-Depends": ", ".join(package.pre_depends),
        "Depends": ", ".join(package.depends),
        "Provides": ", ".join(package.provides),
        "Conflicts": ", ".join(package.conflicts),
        "Replaces": ", ".join(package.replaces),
        "Description": f"{package.summary}\n Made by metal-lab, for its own nodes.",
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items() if value)


def render(template: str, package: Package, **more: object) -> str:
    """Return the text of a template of files/packages."""
    return _templates.get_template(template).render(package=package, **more)


def control_files(package: Package) -> dict[str, str]:
    """Return the texts of everything in the package's control archive, keyed by name."""
    source = SOURCES / package.source_folder
    files = {"control": control(package)}
    for script in MAINTAINER_SCRIPTS:
        if package.units or (source / f"{script}.sh.j2").exists():
            files[script] = render(f"common/{script}.j2", package)
    if (source / "triggers.j2").exists():
        files["triggers"] = render(f"{package.source_folder}/triggers.j2", package)
    elif any(".so." in path for path in package.binaries):
        files["triggers"] = "activate-noawait ldconfig\n"
    configuration = sorted(path for path in texts(package) if path.startswith("/etc/"))
    if configuration and package.keeps_configuration:
        files["conffiles"] = "".join(f"{path}\n" for path in configuration)
    return files


def texts(package: Package) -> dict[str, str]:
    """Return the texts that the package installs, keyed by path on the node."""
    root = SOURCES / package.source_folder / "root"
    files = {f"/usr/share/doc/{package.name}/copyright": render("common/copyright.j2", package)}
    for template in sorted(root.rglob("*.j2")):
        place = f"/{template.relative_to(root).with_suffix('')}"
        files[place] = render(str(template.relative_to(SOURCES)), package)
    return files


def build_deb(package: Package, folder: Path) -> Path:
    """Build the package into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    # File names in a pool have no epoch.
    version = package.version.rpartition(":")[2]
    deb = folder / f"{package.name}_{version}_amd64.deb"
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as temporary:
        tree = Path(temporary)
        control = {f"DEBIAN/{path}": text for path, text in control_files(package).items()}
        fill(tree, texts(package) | control, package)
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, deb],
            env=build_environment(),
            stdout=subprocess.DEVNULL,
            check=True,
        )
    return deb


def fill(tree: Path, texts: Mapping[str, str], package: Package) -> None:
    """Write texts, and the programs and links of the package, into a folder."""

    def place(path: str) -> Path:
        target = tree / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    tree.mkdir(exist_ok=True)
    for path, text in texts.items():
        place(path).write_text(text)
    for path, source in package.binaries.items():
        shutil.copyfile(source, place(path))
    for path, target in package.links.items():
        place(path).symlink_to(target)
    # Independent of the umask and of the modes of the sources.
    for found in (tree, *tree.rglob("*")):
        if not found.is_symlink():
            found.chmod(0o755 if found.is_dir() or _is_executable(found) else 0o644)


def build_environment() -> dict[str, str]:
    """Return the environment in which the same input gives the same package."""
    return {**os.environ, "SOURCE_DATE_EPOCH": SOURCE_DATE_EPOCH}


def _is_executable(path: Path) -> bool:
    programs = path.match("bin/*") or path.match("sbin/*") or path.match("usr/lib/nvidia/current/*")
    return programs or path.name in MAINTAINER_SCRIPTS


# ---------------------------------------------------------------------------------------------
# The packages of the mirror


def _exactly(version: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{name} (= {version})" for name in names)


def _programs(folder: Path, *names: str) -> dict[str, Path]:
    return {f"/usr/bin/{name}": folder / name for name in names}


def _for_suite(version: str, suite: str) -> str:
    """Return the version of Docker's build for one release of Debian."""
    return f"{version}-1~debian.{RELEASES[suite]}~{suite}"


def containerd(containerd: Path, runc: Path, suite: str, version: str = CONTAINERD) -> Package:
    """Return containerd as Docker packages it, with runc."""
    replaced = ("containerd", "runc")
    return Package(
        "containerd.io",
        _for_suite(version, suite),
        "open and reliable container runtime",
        section="admin",
        provides=replaced,
        conflicts=replaced,
        replaces=replaced,
        binaries={
            **_programs(containerd, "containerd", "containerd-shim-runc-v2", "ctr"),
            **_programs(runc, "runc"),
        },
        units=("containerd.service",),
    )


def docker(
    engine: Path, command_line: Path, suite: str, docker_version: str = DOCKER
) -> Iterator[Package]:
    """Yield Docker's packages, which need its containerd."""
    version = _for_suite(f"5:{docker_version}", suite)
    yield Package(
        "docker-ce",
        version,
        "Docker: the open-source application container engine",
        section="admin",
        depends=("containerd.io (>= 2.1.5)", "docker-ce-cli", "iptables", "nftables"),
        conflicts=("docker.io",),
        binaries=_programs(engine, "dockerd", "docker-proxy"),
        units=("docker.socket", "docker.service"),
    )
    yield Package(
        "docker-ce-cli",
        version,
        "Docker CLI: the open-source application container engine",
        section="admin",
        conflicts=("docker-cli", "docker.io"),
        binaries=_programs(command_line, "docker"),
    )


def cri_dockerd(programs: Path) -> Package:
    """Return Mirantis' package. It is a file of upstream's release, and in no repository."""
    return Package(
        "cri-dockerd",
        f"{CRI_DOCKERD}~3-0~debian-bookworm",
        "lightweight implementation of the CRI specification which talks to docker",
        section="admin",
        depends=(
            "containerd (>= 1.2.2-3) | containerd.io (>= 1.2.2-3) | moby-containerd (>= 1.2.2)",
            "iptables",
            "libseccomp2 (>= 2.3.0)",
        ),
        binaries=_programs(programs, "cri-dockerd"),
        units=("cri-docker.socket", "cri-docker.service"),
    )


def kubelet(programs: Path) -> Package:
    """Return the kubelet as Kubernetes packages it."""
    return Package(
        "kubelet",
        f"{KUBERNETES}-1.1",
        "node agent of Kubernetes",
        section="admin",
        depends=("iproute2", "iptables", "mount", "util-linux"),
        binaries=_programs(programs, "kubelet"),
        units=("kubelet.service",),
    )


def toolkit(programs: Path, toolkit_version: str = CONTAINER_TOOLKIT) -> Iterator[Package]:
    """Yield the NVIDIA container toolkit. Its packages depend on exactly each other's version."""
    version = f"{toolkit_version}-1"
    yield Package(
        "nvidia-container-toolkit-base",
        version,
        "NVIDIA container runtime and CDI tools",
        binaries=_programs(programs, "nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime"),
        units=("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service"),
    )
    yield Package(
        "nvidia-container-toolkit",
        version,
        "NVIDIA container toolkit",
        depends=_exactly(version, "nvidia-container-toolkit-base", "libnvidia-container-tools"),
        binaries=_programs(programs, "nvidia-container-runtime-hook"),
        links={"/usr/bin/nvidia-container-toolkit": "nvidia-container-runtime-hook"},
    )
    yield Package(
        "libnvidia-container-tools",
        version,
        "placeholder without programs: the legacy mode is not part of the laboratory",
        depends=_exactly(version, "libnvidia-container1"),
    )
    yield Package(
        "libnvidia-container1",
        version,
        "placeholder without library: the legacy mode is not part of the laboratory",
        section="libs",
    )


def driver(driver_version: str, silicon: Path) -> Iterator[Package]:
    """Yield one driver version with both flavours of its module and the stand-in silicon."""
    version = f"{driver_version}-1"
    exactly = partial(_exactly, version)

    def nvidia(name: str, summary: str, section: str = "non-free/kernel", **more: Any) -> Package:
        return Package(name, version, summary, section, **more)

    def libraries(*names: str) -> dict[str, Path]:
        files = [f"{name}.so.{driver_version}" for name in names]
        return {f"{LIBRARIES}/{file}": silicon / file for file in files}

    yield nvidia(
        "libnvidia-ml1",
        "stand-in for NVIDIA's management library",
        section="non-free/libs",
        # The second has the description of the simulated machine while the module is loaded. The
        # first reads it. nvidia-ctk mounts files of this name into containers.
        binaries=libraries("libnvidia-ml", "libnvidia-sandboxutils"),
        links={f"{LIBRARIES}/libnvidia-ml.so.1": f"libnvidia-ml.so.{driver_version}"},
    )
    yield nvidia(
        "libcuda1",
        "stand-in for NVIDIA's CUDA driver library",
        section="non-free/libs",
        binaries=libraries("libcuda"),
        links={f"{LIBRARIES}/libcuda.so.1": f"libcuda.so.{driver_version}"},
    )
    relation = ("nvidia-fabricmanager",)
    smi = _programs(silicon, "nvidia-smi")
    has_own_smi = int(driver_version.partition(".")[0]) < _SMI_MOVED
    if has_own_smi:
        yield nvidia(
            "nvidia-smi",
            "stand-in for NVIDIA's system management interface",
            depends=exactly("libnvidia-ml1"),
            binaries=smi,
        )
    yield nvidia("nvidia-modprobe", "stand-in for NVIDIA's module loader")
    yield nvidia(
        "nvidia-persistenced",
        "stand-in for NVIDIA's persistence daemon",
        units=("nvidia-persistenced.service",),
    )
    # It has no relation to the driver, and nobody enables or starts it.
    branch = int(driver_version.partition(".")[0])
    suffix = "" if branch >= _FABRIC_RENAMED else f"-{branch}"
    yield nvidia(
        f"nvidia-fabricmanager{suffix}",
        "stand-in for NVIDIA's Fabric Manager",
        section="non-free/admin",
        folder="nvidia-fabricmanager",
        facts={"driver": driver_version},
        **({"provides": relation, "conflicts": relation, "replaces": relation} if suffix else {}),
    )
    yield nvidia("nvidia-kernel-support", "settings for NVIDIA's kernel module", depends=("kmod",))
    yield nvidia("firmware-nvidia-gsp", "placeholder without firmware: the GPUs are simulated")
    for flavour, name, other in (
        ("open", "nvidia-kernel-open-dkms", "nvidia-kernel-dkms"),
        ("proprietary", "nvidia-kernel-dkms", "nvidia-kernel-open-dkms"),
    ):
        yield nvidia(
            name,
            f"stand-in for NVIDIA's {flavour} kernel module",
            depends=exactly("nvidia-kernel-support", "firmware-nvidia-gsp"),
            conflicts=(other,),
            folder="nvidia-kernel-dkms",
            facts={"driver": driver_version, "flavour": flavour, "module": "nvidia"},
        )
    yield nvidia(
        "nvidia-driver-cuda",
        "NVIDIA driver for computing (metapackage)",
        depends=exactly(
            "libcuda1",
            "libnvidia-ml1",
            "nvidia-kernel-support",
            "nvidia-modprobe",
            "nvidia-persistenced",
            *(("nvidia-smi",) if has_own_smi else ()),
        ),
        provides=() if has_own_smi else ("nvidia-smi",),
        conflicts=() if has_own_smi else ("nvidia-smi",),
        binaries={} if has_own_smi else smi,
    )
    # Like upstream's, these two accept a newer driver: only pinning prevents it.
    # https://forums.developer.nvidia.com/t/353805
    for name, module in (
        ("nvidia-open", "nvidia-kernel-open-dkms"),
        ("cuda-drivers", "nvidia-kernel-dkms"),
    ):
        yield nvidia(
            name,
            "NVIDIA driver without its desktop parts (metapackage)",
            depends=(
                f"nvidia-driver-cuda (>= {driver_version})",
                f"{module} (>= {driver_version})",
            ),
        )
    yield nvidia(
        f"nvidia-driver-pinning-{driver_version}",
        f"keeps the NVIDIA driver at {driver_version}",
        section="admin",
        provides=("nvidia-driver-pinning",),
        conflicts=("nvidia-driver-pinning",),
        replaces=("nvidia-driver-pinning",),
        folder="nvidia-driver-pinning",
        facts={"driver": driver_version},
        # Without a purge, this preference would block the version of the next pinning package.
        keeps_configuration=False,
    )


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
