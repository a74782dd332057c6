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

RECORD = Path(__file__).parent / "recorded" / "debian_driver.yml"


def _record() -> dict[str, Any]:
    record: dict[str, Any] = yaml.safe_load(RECORD.read_text())
    return record


def version() -> str:
    """Return the version of Debian's driver."""
    return str(_record()["version"])


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
    version, folders = record["version"], record["folders"]
    modules = record["modules"]["nvidia-open-kernel-dkms"]

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
        "nvidia-open-kernel-support": {
            "folder": "debian-nvidia-open-kernel-support",
            "facts": {"module": modules},
            "links": {
                place: target
                for place, target in record["links"].items()
                if place.startswith("/etc/nvidia/")
            },
        },
        "nvidia-open-kernel-dkms": {
            "folder": "nvidia-kernel-dkms",
            "facts": {"driver": version, "flavour": "open", "module": modules},
        },
        "nvidia-smi": {
            "binaries": {f"{folders['programs']}/nvidia-smi": silicon / "nvidia-smi"},
        },
        # The second carries the description of the simulated machine.
        "libnvidia-ml1": library("libnvidia-ml", "libnvidia-sandboxutils"),
        "libcuda1": library("libcuda"),
        "nvidia-persistenced": {"units": ("nvidia-persistenced.service",)},
    }
