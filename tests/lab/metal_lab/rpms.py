# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The .rpm packages of the mirror and of the nodes of Red Hat's family.

Names, versions and relations come from the record. What is in the packages is the same as in the
.deb packages: see packages.py.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from metal_lab import packages, parts
from metal_lab.description import Description
from metal_lab.groups import Group
from metal_lab.packages import EMPTY, Package
from metal_lab.versions import CONTAINER_TOOLKIT, CONTAINERD, DOCKER, KUBERNETES

RECORD = Path(__file__).parent / "recorded" / "redhat.yml"
RECORDED: dict[str, Any] = yaml.safe_load(RECORD.read_text())
SYSTEMS: dict[str, dict[str, Any]] = RECORDED["systems"]

LIBRARIES = "/usr/lib64"
# Where the node image has the plugin of Debian's package, which contains all plugins of dnf.
PLUGIN = "/usr/local/lib/metal-lab/dnf/versionlock.py"
PLUGINS = "/usr/lib/python3/dist-packages/dnf-plugins"

# The packages of Debian and of Red Hat's family have these in different folders.
_ELSEWHERE = (("/etc/default/", "/etc/sysconfig/"),)
# Folders of the distribution. No other package owns them.
_COMMON_FOLDERS = frozenset(
    (
        *("/", "/etc", "/etc/dnf", "/etc/dnf/plugins", "/etc/sysconfig", "/usr", "/usr/bin"),
        *("/usr/lib", "/usr/lib/modprobe.d", "/usr/lib/modules", "/usr/lib/python3"),
        *("/usr/lib/python3/dist-packages", PLUGINS, "/usr/lib/systemd"),
        *("/usr/lib/systemd/system", "/usr/lib/udev", "/usr/lib/udev/rules.d", LIBRARIES),
        *("/usr/share", "/usr/share/doc", "/usr/src", "/usr/src/kernels"),
    )
)
_MACROS = {
    "_topdir": "TREE/rpmbuild",
    "_binary_payload": "w.ufdio",  # not compressed
    "_buildhost": "metal-lab",
    "use_source_date_epoch_as_buildtime": "1",
    "clamp_mtime_to_source_date_epoch": "1",
    "debug_package": "%{nil}",
    "__os_install_post": "%{nil}",
    "_build_id_links": "none",
    "_isa": "(x86-64)",
}


@dataclass(frozen=True)
class Rpm(Package):
    """One binary package. Its relations have rpm's syntax."""

    epoch: int = 0
    release: str = "1"
    arch: str = "x86_64"
    obsoletes: tuple[str, ...] = ()
    keeps_configuration: bool = field(default=True, init=False)  # rpm keeps what was edited

    @property
    def relations(self) -> dict[str, tuple[str, ...]]:
        return {
            "Requires": self.depends,
            "Provides": self.provides,
            "Conflicts": self.conflicts,
            "Obsoletes": self.obsoletes,
        }

    @property
    def has_libraries(self) -> bool:
        return any(".so." in path for path in self.binaries)

    def build(self, folder: Path) -> Path:
        return build_rpm(self, folder)


def scripts(package: Rpm) -> set[str]:
    """Return which scripts the package has."""
    source = packages.SOURCES / package.source_folder
    own = {"post": "postinst.sh.j2", "preun": "prerm.sh.j2"}
    found = {name for name, template in own.items() if (source / template).exists()}
    if package.units:
        found |= {"post", "preun", "postun"}
    if package.has_libraries:
        found |= {"post", "postun"}
    return found


def _place(path: str) -> str:
    """Return where a package of Red Hat's family has a file of the .deb."""
    for old, new in (*_ELSEWHERE, ("/lib/", "/usr/lib/")):
        if path.startswith(old):
            return path.replace(old, new, 1)
    return path


def texts(package: Rpm) -> dict[str, str]:
    """Return the texts that the package installs, keyed by path on the node."""
    found = {}
    for path, text in packages.texts(package).items():
        for old, new in _ELSEWHERE:
            text = text.replace(old, new)
        found[_place(path)] = text
    return found


def build_rpm(package: Rpm, folder: Path) -> Path:
    """Build the package into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as temporary:
        work = Path(temporary)
        packages.fill(work / "root", texts(package), package)
        spec = work / "package.spec"
        spec.write_text(
            packages.render(
                "common/rpm.spec.j2",
                package,
                tree=work / "root",
                scripts=scripts(package),
                files=list(_file_list(work / "root")),
            )
        )
        macros = [
            word
            for name, value in _MACROS.items()
            for word in ("--define", f"{name} {value.replace('TREE', str(work))}")
        ]
        result = subprocess.run(
            ["rpmbuild", "-bb", "--quiet", f"--target={package.arch}", *macros, spec],
            env=packages.build_environment(),
            check=False,
            capture_output=True,
            text=True,
        )
        if result.returncode != 0:
            raise SystemExit(f"cannot build {package.name}:\n{result.stdout}{result.stderr}")
        (rpm,) = (work / "rpmbuild" / "RPMS").rglob("*.rpm")
        return rpm.rename(folder / rpm.name)


def _file_list(root: Path) -> Iterator[str]:
    """Yield the lines of the section %files."""
    yield "%defattr(-,root,root,-)"
    for found in sorted(root.rglob("*")):
        path = f"/{found.relative_to(root)}"
        if found.is_dir() and not found.is_symlink():
            if path not in _COMMON_FOLDERS:
                yield f"%dir {path}"
        else:
            yield f"%config(noreplace) {path}" if path.startswith("/etc/") else path


# ---------------------------------------------------------------------------------------------
# The packages


def _row(row: Mapping[str, Any], version: str, dist: str, **more: Any) -> Rpm:
    """Return the package of a row of the record."""
    epoch = row.get("epoch", 0)
    release = row.get("release", "1").replace("DIST", dist)
    full = f"{epoch}:{version}" if epoch else version

    def relations(kind: str) -> tuple[str, ...]:
        return tuple(
            one.replace("EVERSION", full).replace("EVR", f"{full}-{release}")
            for one in row.get(kind, ())
        )

    return Rpm(
        row["name"],
        version,
        more.pop("summary", f"stand-in for {row['name']}"),
        depends=relations("requires"),
        provides=relations("provides"),
        conflicts=relations("conflicts"),
        obsoletes=relations("obsoletes"),
        units=tuple(row.get("units", ())),
        folder=row.get("folder", ""),
        epoch=epoch,
        release=release,
        arch=row.get("arch", "x86_64"),
        **more,
    )


def driver(driver_version: str, silicon: Path, dist: str) -> Iterator[Rpm]:
    """Yield one driver version with both flavours of its module and the stand-in silicon."""
    same = {"epoch": RECORDED["driver_epoch"], "release": RECORDED["driver_release"]}
    for row in RECORDED["driver"]:
        libraries = [f"{name}.so.{driver_version}" for name in row.get("libraries", ())]
        facts = {"driver": driver_version, "flavour": row.get("flavour"), "module": "nvidia"}
        yield _row(
            row | same,
            driver_version,
            dist,
            binaries={
                **{f"/usr/bin/{name}": silicon / name for name in row.get("files", ())},
                **{f"{LIBRARIES}/{name}": silicon / name for name in libraries},
            },
            # The first library is the one that programs load.
            links={f"{LIBRARIES}/{name.partition('.so.')[0]}.so.1": name for name in libraries[:1]},
            facts=facts,
        )


def containerd(containerd: Path, runc: Path, dist: str) -> Rpm:
    """Return containerd as Docker packages it, with runc."""
    deb = packages.containerd(containerd, runc, "bookworm")
    return _row(RECORDED["containerd"], CONTAINERD, dist, binaries=deb.binaries)


def docker(engine: Path, command_line: Path, dist: str) -> Iterator[Rpm]:
    """Yield Docker's packages, which need its containerd."""
    debs = packages.docker(engine, command_line, "bookworm")
    for row, deb in zip(RECORDED["docker"], debs, strict=True):
        yield _row(row, DOCKER, dist, binaries=deb.binaries)


def toolkit(programs: Path, dist: str) -> Iterator[Rpm]:
    """Yield the NVIDIA container toolkit."""
    # The content is that of the .deb packages.
    for row, deb in zip(RECORDED["toolkit"], packages.toolkit(programs), strict=True):
        yield _row(
            row,
            CONTAINER_TOOLKIT,
            dist,
            summary=deb.summary,
            binaries=deb.binaries,
            links=deb.links,
        )


def kubelet(programs: Path) -> Rpm:
    """Return the kubelet as Kubernetes packages it."""
    row = {"name": "kubelet", "units": ["kubelet.service"], "release": "150500.1.1"}
    return _row(row, KUBERNETES, "", binaries=packages.kubelet(programs).binaries)


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
    headers = _row(
        {"name": name},
        "1",
        "",
        binaries={f"{source}/Makefile": EMPTY},
        links={f"/usr/lib/modules/{kernel_release}/build": source},
    )
    return headers, _row(matched, "1", "")


def _distribution(pool: str, system: str) -> Iterator[Rpm]:
    dist, minor = SYSTEMS[system]["dist"], SYSTEMS[system]["os_release"]["VERSION_ID"]

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(one) for one in value]
        return str(value).replace("MINOR", minor).replace("MAJOR", minor.partition(".")[0])

    for found in RECORDED["distribution"][pool]:
        row = {key: filled(value) for key, value in found.items()}
        more: dict[str, Any] = {}
        if row["name"] == "python3-dnf-plugin-versionlock":
            more = {
                "links": {f"{PLUGINS}/{PurePosixPath(PLUGIN).name}": PLUGIN},
                "binaries": {"/etc/dnf/plugins/versionlock.list": EMPTY},
            }
        yield _row(row, row.get("version", "1"), dist, **more)


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
        found = tuple(toolkit(programs["container-toolkit"], ""))
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
        if parts.CONTAINERD in wanted or parts.DOCKER in wanted:
            package = containerd(programs["containerd"], programs["runc"], dist)
            yield Group(f"containerd-{dist}", f"docker-centos{number}", (package,))
        if parts.DOCKER in wanted:
            both = tuple(docker(programs["docker"], programs["docker-cli"], dist))
            yield Group(f"docker-{dist}", f"docker-centos{number}", both)
        for version in description.drivers:
            found = tuple(driver(version, silicon(version), dist))
            yield Group(f"driver-{version}-{dist}", f"nvidia-rhel{number}", found)
