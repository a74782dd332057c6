# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The virgin nodes whose plans are the golden texts: one for each system, engine and GPU."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
    ObservedRepository,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import REDHAT, System
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    VIRGIN,
    load,
    merge,
)

ROOT = Path(__file__).parents[3]


ENGINES = (engines.CONTAINERD, engines.DOCKER, engines.CRIO)
FIXTURES = {engines.DOCKER: "docker", engines.CRIO: "crio"}
# The running kernel, one that the archive has, and what compiled it. The keys are parts of the
# versions of the system's packages.
KERNELS = {
    "debian.12": ("6.1.0-50-amd64", "gcc-12"),
    "debian.13": ("6.12.107+deb13-amd64", "gcc-14"),
    "ubuntu.22.04": ("6.8.0-149-generic", "gcc-12"),
    "ubuntu.24.04": ("6.8.0-151-generic", "gcc-13"),
    "ubuntu.26.04": ("7.0.0-44-generic", "gcc-15"),
    ".el9": ("5.14.0-570.12.1.el9_6.x86_64", "gcc"),
    ".el10": ("6.12.0-124.8.1.el10_1.x86_64", "gcc"),
}
# The meta packages of these kernels, with their versions.
META_PACKAGES = {
    "debian.12": ("linux-image-amd64", "6.1.176-1"),
    "debian.13": ("linux-image-amd64", "6.12.107-1"),
    "ubuntu.22.04": ("linux-image-generic-hwe-22.04", "6.8.0-149.149~22.04.1"),
    "ubuntu.24.04": ("linux-image-generic", "6.8.0-151.151"),
    "ubuntu.26.04": ("linux-image-generic", "7.0.0-44.44"),
}
# The default of `*_repository`.
REPOSITORY = "{{ metal_gpu_repository | default(true) }}"
# As Rocky Linux has it; only that it is enabled matters.
EPEL = "[epel]\nmetalink=https://mirrors.fedoraproject.org/metalink?repo=epel-$releasever\n"


class Card(NamedTuple):
    """A GPU that stands for those that are treated alike."""

    generations: str
    name: str
    device: str


HOPPER = Card("Hopper", "H100", "2330")
CARDS = (
    Card("Maxwell, Pascal, Volta", "Tesla P100", "15f8"),
    Card("Turing, Ampere, Ada", "Tesla T4", "1eb8"),
    HOPPER,
    Card("Blackwell", "B200", "2901"),
    Card("Kepler", "Tesla K80", "102d"),
)


def node(system: System, engine: str, card: Card, *, has_engine: bool) -> dict[str, Any]:
    """Return the observation of a node with a kubelet, and nothing of NVIDIA's."""
    found = merge(VIRGIN, load(FIXTURES[engine]) if engine in FIXTURES else {})
    meta = next((one for mark, one in META_PACKAGES.items() if mark in system.build), None)
    found["packages"] = {meta[0]: {"version": meta[1], "held": False}} if meta else {}
    found["package_sources"] = sources(system)
    found["os"] |= {
        "id": system.id,
        "version_id": system.version,
        "codename": system.codename or None,
        "family": system.family,
        "name": system.name,
    }
    kernel = next(kernel for mark, kernel in KERNELS.items() if mark in system.build)
    found["kernel"] |= dict(zip(("release", "compiler"), kernel, strict=True))
    found["pci"] = [{**gpu, "device": card.device} for gpu in found["pci"]]
    # A ramdisk that has nothing of the driver in it, as every installation makes one.
    found["driver"]["initramfs_outdated"] = False
    for name in ENGINES:
        found["engines"][name]["installed"] = name == engine and has_engine
    if engine == engines.DOCKER:
        for state in ("installed", "running", "enabled"):
            found["engines"][engine]["cri_dockerd"][state] = has_engine
    if system.family == REDHAT:
        found["driver"]["initramfs_program"] = "/usr/bin/dracut"
        path = "/etc/yum.repos.d/epel.repo"
        found["repositories"] = {"epel": ObservedRepository.parse(path, EPEL, None)._asdict()}
    return found


def sources(system: System) -> list[dict[str, Any]]:
    """Return what an installation writes: Debian's has no drivers, Ubuntu's has restricted ones."""
    if system.family == REDHAT:
        return []
    url, components = {
        "debian": ("http://deb.debian.org/debian", "main non-free-firmware"),
        "ubuntu": ("http://archive.ubuntu.com/ubuntu", "main restricted universe multiverse"),
    }[system.id]
    source = {
        "path": f"/etc/apt/sources.list.d/{system.id}.sources",
        "url": url,
        "suite": system.codename,
        "section": "",
        "components": components,
        "signed_by": f"/usr/share/keyrings/{system.id}-archive-keyring.gpg",
        "unsigned": "",
        "credentials": False,
    }
    found = [source, {**source, "suite": f"{system.codename}-updates"}]
    if system.id == "debian":
        suite = f"{system.codename}-security"
        found.append({**source, "url": "http://deb.debian.org/debian-security", "suite": suite})
    return found


def with_driver(found: dict[str, Any]) -> dict[str, Any]:
    """Return the node as the role before the runtime's leaves it: with a driver that answers."""
    return merge(found, {"nvml": {"failure": None}})


def variables(role: str, **more: Any) -> dict[str, Any]:
    """Return what a role desired where nobody has set anything."""
    path = ROOT / "roles" / role / "defaults" / "main.yml"
    defaults = yaml.safe_load(path.read_text())
    plain = {name.removeprefix(f"{role}_"): value for name, value in defaults.items()}
    return {
        "host": "node",
        "now": datetime(2026, 11, 22, tzinfo=UTC),
        "reboot_ok": None,
        "default": None,
        "engine_is_new": True,
        "cri_is_planned": False,
        "driver_is_planned": False,
        **plain,
        **{name: True for name, value in plain.items() if value == REPOSITORY},
        "envvar": "auto",  # a template that other roles' variables decide
        **more,
    }
