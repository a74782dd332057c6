# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Debian's own NVIDIA driver in Debian's layout: with alternatives, and in other folders.

All names, versions, relations, paths and alternatives come from the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from metal_lab.debs import Package, render

RECORD = Path(__file__).parent / "recorded" / "debian_driver.yml"
# Debian's archive in its own form, with suites and components, has a pool for each component.
POOL = "debian13"
COMPONENTS = ("main", "contrib", "non-free", "non-free-firmware")
SETTINGS = "debian-nvidia-kernel-support"  # the folder of the templates


def _record() -> dict[str, Any]:
    record: dict[str, Any] = yaml.safe_load(RECORD.read_text())
    return record


def version() -> str:
    """Return the version of Debian's driver."""
    return str(_record()["version"])


def component(section: str) -> str:
    """Return the component of Debian's archive that a package of this section is in."""
    found, has_component, _name = section.partition("/")
    return found if has_component else "main"


def rows(silicon: Callable[[str], Path]) -> Iterator[dict[str, Any]]:
    """Yield the fields of each package, with the files of the stand-in silicon."""
    record = _record()
    contents = _contents(record, silicon(record["version"]))
    for row in record["packages"]:
        relations = {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
        yield {
            **row,
            **relations,
            "summary": "placeholder, or stand-in, for a part of Debian's NVIDIA driver",
            **contents.get(row["name"], {}),
        }


def _contents(record: Mapping[str, Any], silicon: Path) -> dict[str, dict[str, Any]]:
    """Return the contents of the packages that are not empty."""
    version, folders, modules = record["version"], record["folders"], record["modules"]

    def settings(folder: str, module: str) -> dict[str, Any]:
        place = folders[folder]
        templates = ("blacklists-nouveau", "load", "modprobe", "options")
        names = [f"nvidia-{name}.conf" for name in templates]
        anything = Package("settings", version, "")
        return {
            "files": {
                f"{place}/{name}": render(f"{SETTINGS}/{name}.j2", anything, module=module)
                for name in names
            },
            "links": {
                link: target
                for link, target in record["links"].items()
                if target == Path(place).name
            },
        }

    def build(module: str, flavour: str) -> dict[str, Any]:
        facts = {"driver": version, "flavour": flavour, "module": module}
        return {"folder": "nvidia-kernel-dkms", "facts": facts}

    def library(*names: str) -> dict[str, Any]:
        files = [f"{name}.so.{version}" for name in names]
        links = {
            place: target
            for place, target in record["links"].items()
            if Path(place).name.startswith(f"{names[0]}.so")
        }
        return {
            "binaries": {f"{folders['libraries']}/{file}": silicon / file for file in files},
            "links": links,
        }

    return {
        "nvidia-alternative": {
            "folder": "debian-nvidia-alternative",
            "facts": {"folders": folders, "alternatives": record["alternatives"]},
        },
        "nvidia-open-kernel-support": settings("settings", modules["nvidia-open-kernel-dkms"]),
        "nvidia-kernel-support": {
            **settings("proprietary_settings", modules["nvidia-kernel-dkms"]),
            "folder": SETTINGS,  # not that of NVIDIA's package of this name
        },
        "nvidia-open-kernel-dkms": build(modules["nvidia-open-kernel-dkms"], "open"),
        "nvidia-kernel-dkms": build(modules["nvidia-kernel-dkms"], "proprietary"),
        "nvidia-smi": {
            "binaries": {f"{folders['programs']}/nvidia-smi": silicon / "nvidia-smi"},
        },
        # The second carries the description of the simulated machine.
        "libnvidia-ml1": library("libnvidia-ml", "libnvidia-sandboxutils"),
        "libcuda1": library("libcuda"),
        "nvidia-persistenced": {"units": ("nvidia-persistenced.service",)},
    }
