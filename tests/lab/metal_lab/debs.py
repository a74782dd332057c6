# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The builder of .deb packages. packages.py has the packages.

The files of a package are `binaries` that are built elsewhere, and the templates in its folder in
files/packages. A template has the name of its result plus `.j2`:

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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from metal_lab.cache import FILES

SOURCES = FILES / "packages"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
EMPTY = Path(os.devnull)  # the source of an empty file

MAINTAINER_SCRIPTS = ("postinst", "prerm", "postrm")
_DEBCONF = "templates"

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
    files: Mapping[str, str] = field(default_factory=dict)  # path on the node → text
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
    if (source / f"{_DEBCONF}.j2").exists():
        questions = render(f"{package.source_folder}/{_DEBCONF}.j2", package)
        files |= {_DEBCONF: questions} if questions.strip() else {}
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
    return files | {**package.files}


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
    folders = ("bin/*", "sbin/*", "usr/lib/nvidia/current/*", "usr/libexec/crio/*")
    return any(map(path.match, folders)) or path.name in MAINTAINER_SCRIPTS
