# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's `.run` files: a shell script with an archive behind it.

The options that an installer knows come from the record. Any other option is an error, as it is for
the real one. Debian's dkms builds the module, which is a text: see kernel_packages.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from metal_lab import debs, kernel_packages, parts
from metal_lab.cache import FILES, digest
from metal_lab.debs import EMPTY, LIBRARIES, Package, render
from metal_lab.description import Description
from metal_lab.groups import Group
from metal_lab.versions import LEGACY_DRIVER

RECORD = Path(__file__).parent / "recorded" / "runfile.yml"
SOURCES = FILES / "runfile"
MODPROBE = "nvidia-modprobe/root/usr/bin/nvidia-modprobe.j2"
_FIRST_OPEN = 515
_OPEN_BY_DEFAULT = 560


def options(version: str) -> list[str]:
    """Return the options that the installer of a version knows."""
    record: dict[str, Any] = yaml.safe_load(RECORD.read_text())
    found = []
    for row in record["options"]:
        if _numbers(row["since"]) <= _numbers(version):
            found.append(f"--{row['name']}")
            if row.get("boolean"):
                found.append(f"--no-{row['name']}")
    return found


def run_file(version: str, silicon: Path, machine: str = "x86_64") -> RunFile:
    """Return the `.run` file of a driver. Its name has NVIDIA's form."""
    name = f"NVIDIA-Linux-{machine}-{version}.run"
    summary = "stand-in for NVIDIA's .run file"
    # The key of the cache, besides the silicon.
    sources = (SOURCES, RECORD, debs.SOURCES / MODPROBE, Path(__file__))
    facts = {"made of": digest(*sources, Path(kernel_packages.__file__))}
    return RunFile(name, version, summary, facts=facts, silicon=silicon, machine=machine)


def groups(
    description: Description, silicon: Callable[[str], Path], legacy: str = LEGACY_DRIVER
) -> Iterator[Group]:
    """Yield the `.run` files of a laboratory: of its drivers, of an old one, and a foreign one."""
    if parts.RUN_FILES not in description.parts:
        return
    versions = dict.fromkeys((*description.drivers, legacy))
    made = [run_file(version, silicon(version)) for version in versions]
    foreign = description.drivers[0] if description.drivers else legacy
    made.append(run_file(foreign, silicon(foreign), "aarch64"))
    yield Group("run-files", "run-files", tuple(made))
    yield Group("dkms", "debian", tuple(kernel_packages.dkms()))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(one) for one in version.split("."))


@dataclass(frozen=True)
class RunFile(Package):
    """A `.run` file for a version of the driver, and for a machine."""

    silicon: Path = EMPTY  # the folder with the stand-ins for the libraries and nvidia-smi
    machine: str = "x86_64"

    def build(self, folder: Path) -> Path:
        """Build the file into the folder. The same input gives the same bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        head = (SOURCES / "head.sh").read_text()
        head = head.replace("@VERSION@", self.version).replace("@MACHINE@", self.machine)
        path = folder / self.name
        path.write_bytes(head.encode() + self._archive())
        return path

    def _archive(self) -> bytes:
        branch = int(self.version.partition(".")[0])
        flavours = {"kernel": "proprietary"}
        if branch >= _FIRST_OPEN:
            flavours["kernel-open"] = "open"
        default = "kernel-open" if branch >= _OPEN_BY_DEFAULT else "kernel"
        texts = {
            "version": f"{self.version}\n",
            "options": "".join(f"{one}\n" for one in options(self.version)),
            "default-folder": f"{default}\n",
            **{
                f"{folder}/{name}": text
                for folder, flavour in flavours.items()
                for name, text in kernel_packages.source_texts(self.version, flavour).items()
            },
        }
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            for name, text in texts.items():
                _add(archive, name, text.encode(), 0o644)
            _add(archive, "nvidia-installer", (SOURCES / "nvidia-installer").read_bytes(), 0o755)
            _add(archive, "files/usr/bin/nvidia-smi", self._read("nvidia-smi"), 0o755)
            modprobe = render(MODPROBE, self).encode()
            _add(archive, "files/usr/bin/nvidia-modprobe", modprobe, 0o755)
            for name in ("libnvidia-ml", "libnvidia-sandboxutils", "libcuda"):
                file = f"{name}.so.{self.version}"
                _add(archive, f"files{LIBRARIES}/{file}", self._read(file), 0o644)
                if name != "libnvidia-sandboxutils":
                    link = tarfile.TarInfo(f"files{LIBRARIES}/{name}.so.1")
                    link.type, link.linkname = tarfile.SYMTYPE, file
                    archive.addfile(link)
        return out.getvalue()

    def _read(self, name: str) -> bytes:
        return (self.silicon / name).read_bytes()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    archive.addfile(info, io.BytesIO(content))
