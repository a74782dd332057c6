# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ubuntu's archive as far as its NVIDIA driver needs it, and NVIDIA's repository for Ubuntu.

A node has a real Ubuntu. Its kernel, the driver and their packages are stand-ins. All names,
versions, relations, paths and options come from the record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from metal_lab.debs import EMPTY, LIBRARIES, Package
from metal_lab.description import Description
from metal_lab.groups import Group, empty
from metal_lab.parts import UPDATES
from metal_lab.versions import NEWER_OF_BRANCH

RECORD = Path(__file__).parent / "recorded" / "ubuntu_driver.yml"
ARCHIVE, EARLIER = "ubuntu", "ubuntu-earlier"
INSTALLED = "ubuntu-installed"  # the group of packages that a node has from the beginning
NVIDIA = "nvidia-ubuntu"
_RELATIONS = ("depends", "provides", "conflicts", "replaces")
_MODULES, _OBJECTS = "linux-modules-nvidia-", "linux-objects-nvidia-"

Silicon = Callable[[str], Path]


@cache
def record() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(RECORD.read_text())
    return found


def release() -> str:
    """Return the kernel that a node runs: that of the archive's meta packages."""
    return f"{record()['archives'][ARCHIVE]['kernel']}-{record()['flavour']}"


def groups(description: Description, silicon: Silicon) -> Iterator[Group]:
    """Yield the packages of a laboratory with nodes of Ubuntu, and nothing for others."""
    if not description.has_ubuntu:
        return
    installed = {f"linux-image-{release()}", f"linux-modules-{release()}", "linux-image-generic"}
    for archive in (ARCHIVE, EARLIER):
        places: defaultdict[str, list[Package]] = defaultdict(list)
        for place, package in packages(archive, silicon):
            places[place].append(package)
        for place, found in places.items():
            name = f"{archive}-{place.replace('/', '-')}"
            yield Group(name, f"{archive}/{place}", tuple(found))
        if archive == ARCHIVE:
            kernel = [one for found in places.values() for one in found if one.name in installed]
            yield Group(INSTALLED, INSTALLED, tuple(kernel))
    if description.drivers:
        yield Group(f"{NVIDIA}-dkms", NVIDIA, (_dkms(),))
    for version in description.drivers:
        yield Group(f"{NVIDIA}-{version}", NVIDIA, tuple(of_nvidia(version, silicon)))
    if UPDATES in description.parts:
        newer = of_nvidia(NEWER_OF_BRANCH, lambda _version: EMPTY)
        yield Group(f"updates-{NVIDIA}", NVIDIA, empty(newer))


def packages(archive: str, silicon: Silicon) -> Iterator[tuple[str, Package]]:
    """Yield the packages of an archive, each with its suite and component."""
    found = record()
    state, flavour = found["archives"][archive], found["flavour"]
    version = f"{state['driver']}-{state['revision']}"
    of_archive = {"driver": state["driver"], "version": version}
    contents = _contents(state["driver"], silicon(state["driver"]))
    yield from _all(found["driver"], of_archive, contents)
    for kernel in found["kernels"][archive]:
        values = {**of_archive, **kernel, "release": f"{kernel['abi']}-{flavour}"}
        contents = _of_kernel(values)
        yield from _all((*found["modules"], *found["kernel"]), values, contents, kernel["build"])
        if kernel["abi"] == state["kernel"]:
            yield from _all(found["meta"], values, {}, kernel["build"])
    for row in found["others"]:
        yield (
            row["place"],
            Package(
                row["name"],
                row["version"],
                "placeholder",
                section=row["section"],
                folder="dkms" if row["name"] == "dkms" else "",
            ),
        )


def of_nvidia(driver_version: str, silicon: Silicon) -> Iterator[Package]:
    """Yield what NVIDIA's repository for Ubuntu has of one driver."""
    found = record()["nvidia"]
    version = f"{driver_version}-{found['revision']}"
    contents = _contents_of_nvidia(driver_version, silicon(driver_version))
    values = {"driver": driver_version, "version": version}
    for row in found["packages"]:
        yield _package(row, values, contents, version)


def _dkms() -> Package:
    """Return the DKMS of NVIDIA's repository, which its drivers need."""
    version = record()["nvidia"]["dkms"]
    return Package("dkms", version, "stand-in for DKMS", folder="dkms", depends=("kmod",))


def _all(
    rows: Iterable[Mapping[str, Any]],
    values: Mapping[str, str],
    contents: Mapping[str, Mapping[str, Any]],
    version: str = "",
) -> Iterator[tuple[str, Package]]:
    for row in rows:
        yield row["place"], _package(row, values, contents, version or values["version"])


def _package(
    row: Mapping[str, Any],
    values: Mapping[str, str],
    contents: Mapping[str, Mapping[str, Any]],
    version: str,
) -> Package:
    name = row["name"].format(**values)
    fields: dict[str, Any] = {
        kind: tuple(one.format(**values) for one in row.get(kind, ())) for kind in _RELATIONS
    }
    summary = "placeholder, or stand-in, for a part of Ubuntu"
    fields |= contents.get(name, {})
    return Package(name, version, summary, section=row["section"], **fields)


# ---------------------------------------------------------------------------------------------
# What is in the packages that are not empty


def _library(silicon: Path, version: str, *names: str) -> dict[str, Any]:
    """Return the files of a library, and its links. The links are those of the first name."""
    files = {f"{LIBRARIES}/{name}.so.{version}": silicon / f"{name}.so.{version}" for name in names}
    links = {}
    for name in names:
        if name != "libnvidia-sandboxutils":  # the laboratory's own
            links[f"{LIBRARIES}/{name}.so"] = f"{name}.so.1"
            links[f"{LIBRARIES}/{name}.so.1"] = f"{name}.so.{version}"
    return {"binaries": files, "links": links}


def _libraries(silicon: Path, version: str) -> dict[str, Any]:
    return _library(silicon, version, "libnvidia-ml", "libcuda", "libnvidia-sandboxutils")


def _module(version: str, flavour: str) -> str:
    """Return a text module with the signature of the distribution."""
    return f"version={version}\nflavour={flavour}\nsigner=distribution\n"


def _contents(version: str, silicon: Path) -> dict[str, dict[str, Any]]:
    found = record()
    return {
        "libnvidia-compute-580-server": {
            **_libraries(silicon, version),
            "files": {found["configuration"]: "libnvidia-opencl.so.1\n"},
        },
        "nvidia-utils-580-server": {
            "binaries": {"/usr/bin/nvidia-smi": silicon / "nvidia-smi"},
        },
        "nvidia-compute-utils-580-server": {
            "folder": "ubuntu-compute-utils",
            "facts": found["unit"],
        },
        "nvidia-kernel-common-580-server": {
            "folder": "ubuntu-kernel-common",
            "facts": found["kernel_common"],
        },
        "nvidia-fabricmanager-580": {
            "folder": "nvidia-fabricmanager",
            "facts": {"driver": version},
        },
    }


def _of_kernel(values: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the contents of the packages of one kernel."""
    found = record()
    folders, latelink, kernel = found["folders"], found["latelink"], values["release"]
    modules = f"/lib/modules/{kernel}"
    facts = {"release": kernel, "trigger": found["trigger"].format(**values)}
    linked = {
        "folder": folders["proprietary"],
        "objects": folders["objects"],
        "question": latelink["question"],
        "answer": latelink["file"],
    }
    headers = f"/usr/src/linux-headers-{kernel}"
    return {
        f"{_MODULES}580-server-open-{kernel}": {
            "folder": "ubuntu-modules",
            "facts": {**facts, "folder": folders["open"], "objects": ""},
            "files": {
                f"{modules}/kernel/{folders['open']}/nvidia.ko": _module(values["of"], "open")
            },
        },
        f"{_MODULES}580-server-{kernel}": {
            "folder": "ubuntu-modules",
            "facts": {**facts, **linked},
        },
        f"{_OBJECTS}580-server-{kernel}": {
            "files": {
                f"{modules}/kernel/{folders['objects']}/nvidia.o": _module(
                    values["of"], "proprietary"
                )
            },
        },
        f"linux-image-{kernel}": {
            "folder": "ubuntu-image",
            "facts": facts,
            "binaries": {f"/boot/vmlinuz-{kernel}": EMPTY},
        },
        f"linux-modules-{kernel}": {
            # The real initramfs-tools reads it.
            "files": {f"/boot/config-{kernel}": "CONFIG_RD_ZSTD=y\n"},
            "binaries": {
                f"{modules}/modules.order": EMPTY,
                f"{modules}/modules.builtin": EMPTY,
                f"{modules}/modules.builtin.modinfo": EMPTY,
            },
        },
        f"linux-headers-{kernel}": {
            "binaries": {f"{headers}/Makefile": EMPTY},
            "links": {f"{modules}/build": headers},
        },
    }


def _contents_of_nvidia(version: str, silicon: Path) -> dict[str, dict[str, Any]]:
    def built(flavour: str) -> dict[str, Any]:
        facts = {"driver": version, "flavour": flavour, "module": "nvidia"}
        return {"folder": "nvidia-kernel-dkms", "facts": facts}

    return {
        "libnvidia-compute-580": _libraries(silicon, version),
        "nvidia-utils-580": {"binaries": {"/usr/bin/nvidia-smi": silicon / "nvidia-smi"}},
        "nvidia-persistenced": {"units": ("nvidia-persistenced.service",)},
        "nvidia-kernel-common-580": {"folder": "nvidia-kernel-support"},
        "nvidia-dkms-580": built("proprietary"),
        "nvidia-dkms-580-open": built("open"),
        f"nvidia-driver-pinning-{version}": {
            "folder": "nvidia-driver-pinning",
            "facts": {"driver": version},
            "keeps_configuration": False,
        },
    }


# ---------------------------------------------------------------------------------------------
# The archive and the sources of a node


def suites(archive: str) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Yield the suites of an archive: name, pool, components, origin.

    What is in the security updates is in the updates, too.
    """
    system = record()["system"]
    base, updates, security = system["suites"]
    for suite, of in ((base, base), (updates, updates), (security, updates)):
        yield suite, f"{archive}/{of}", tuple(system["components"]), system["origin"]


def sources(address: str, keyring: str, path: str = ARCHIVE) -> str:
    """Return ubuntu.sources of an installation, with the laboratory's mirror as the archive."""
    system = record()["system"]
    base, updates, security = system["suites"]
    components = " ".join(system["components"])
    return "\n".join(
        f"Types: deb\n"
        f"URIs: {address}/{path}/\n"
        f"Suites: {suites}\n"
        f"Components: {components}\n"
        f"Signed-By: {keyring}\n"
        for suites in (f"{base} {updates}", security)
    )
