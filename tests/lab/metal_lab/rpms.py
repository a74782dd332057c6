# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The builder of .rpm packages. rpm_packages.py has the packages.

Their files and scripts come from the same templates as those of the .deb packages: see debs.py.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from metal_lab import debs
from metal_lab.debs import Package

LIBRARIES = "/usr/lib64"
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
    source = debs.SOURCES / package.source_folder
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
    for path, text in debs.texts(package).items():
        for old, new in _ELSEWHERE:
            text = text.replace(old, new)
        found[_place(path)] = text
    return found


def build_rpm(package: Rpm, folder: Path) -> Path:
    """Build the package into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as temporary:
        work = Path(temporary)
        debs.fill(work / "root", texts(package), package)
        spec = work / "package.spec"
        spec.write_text(
            debs.render(
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
            env=debs.build_environment(),
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
