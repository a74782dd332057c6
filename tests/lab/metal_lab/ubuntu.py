# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ubuntu's archive as far as its NVIDIA driver needs it, and NVIDIA's repository for Ubuntu.

A node has a real Ubuntu. Its kernel, the driver and their packages are stand-ins. All names,
versions, relations, paths and options come from the records. That of 22.04 has no driver of
Ubuntu's own.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from metal_lab import build_faults
from metal_lab.debs import EMPTY, LIBRARIES, Package
from metal_lab.description import Description
from metal_lab.groups import Group, empty
from metal_lab.parts import UPDATES
from metal_lab.versions import NEWER_OF_BRANCH

RECORDED = Path(__file__).parent / "recorded"
NOBLE = "ubuntu2404"
# Keyed like description.UBUNTU.
RECORDS = {"ubuntu2204": RECORDED / "ubuntu2204.yml", NOBLE: RECORDED / "ubuntu_driver.yml"}
# Of 24.04. The first archive of each record is the one of its nodes.
ARCHIVE, EARLIER = "ubuntu", "ubuntu-earlier"
NVIDIA = "nvidia-ubuntu"
_RELATIONS = ("depends", "provides", "conflicts", "replaces")
_MODULES, _OBJECTS = "linux-modules-nvidia-", "linux-objects-nvidia-"

Silicon = Callable[[str], Path]


@cache
def record(system: str = NOBLE) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(RECORDS[system].read_text())
    return found


def archives() -> Iterator[tuple[str, str]]:
    """Yield all archives, each with the system it is of."""
    for system in RECORDS:
        for archive in record(system)["archives"]:
            yield archive, system


def archive_of(system: str) -> str:
    """Return the archive of the nodes with a system."""
    return str(next(iter(record(system)["archives"])))


def release(system: str = NOBLE) -> str:
    """Return the kernel that a node runs: that of the archive's meta packages."""
    found = record(system)
    return f"{found['archives'][archive_of(system)]['kernel']}-{found['flavour']}"


def installed(system: str) -> str:
    """Return the name of the group of packages that such a node has from the beginning."""
    return f"{system}-installed"


def groups(description: Description, silicon: Silicon) -> Iterator[Group]:
    """Yield the packages of a laboratory with nodes of Ubuntu, and nothing for others."""
    if not description.ubuntu:
        return
    for archive, system in archives():
        if system not in description.ubuntu:
            continue
        places: defaultdict[str, list[Package]] = defaultdict(list)
        for place, package in packages(archive, system, silicon):
            places[place].append(package)
        for place, found in places.items():
            name = f"{archive}-{place.replace('/', '-')}"
            yield Group(name, f"{archive}/{place}", tuple(found))
        if archive == archive_of(system):
            every = (one for found in places.values() for one in found)
            kernel = tuple(one for one in every if _is_kernel(one.name, release(system)))
            yield Group(installed(system), installed(system), kernel)
    if description.drivers:
        yield Group(f"{NVIDIA}-dkms", NVIDIA, (_dkms(),))
    for version in description.drivers:
        yield Group(f"{NVIDIA}-{version}", NVIDIA, tuple(of_nvidia(version, silicon)))
    if UPDATES in description.parts:
        newer = of_nvidia(NEWER_OF_BRANCH, lambda _version: EMPTY)
        yield Group(f"updates-{NVIDIA}", NVIDIA, empty(newer))


def _is_kernel(name: str, running: str) -> bool:
    """Tell whether a package is of the running kernel, or the meta package of its image."""
    return name in (f"linux-image-{running}", f"linux-modules-{running}") or name.startswith(
        "linux-image-generic"
    )


def packages(archive: str, system: str, silicon: Silicon) -> Iterator[tuple[str, Package]]:
    """Yield the packages of an archive, each with its suite and component."""
    found = record(system)
    state, flavour = found["archives"][archive], found["flavour"]
    of_archive: dict[str, str] = {}
    if "driver" in state:
        version = f"{state['driver']}-{state['revision']}"
        of_archive = {"driver": state["driver"], "version": version}
        contents = _contents(state["driver"], silicon(state["driver"]))
        yield from _all(found["driver"], of_archive, contents)
    for kernel in found["kernels"][archive]:
        values = {**of_archive, **kernel, "release": f"{kernel['abi']}-{flavour}"}
        contents = _of_kernel(found, values)
        if "modules" in found:
            contents |= _of_modules(found, values)
            yield from _all(found["modules"], values, contents, kernel["build"])
        yield from _all(found["kernel"], values, contents, kernel["build"])
        if kernel["abi"] == state["kernel"]:
            yield from _all(found["meta"], values, {}, kernel["build"])
    for row in found["others"]:
        yield row["place"], _other(row)


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
    return _other({"name": "dkms", "section": "admin", **record()["nvidia"]["dkms"]})


def _other(row: Mapping[str, Any]) -> Package:
    """Return a package of neither the driver nor the kernel. That of DKMS does something.

    A compiler is an empty program: only its name counts.
    """
    program = row.get("program", "")
    return Package(
        row["name"],
        row["version"],
        "placeholder, or stand-in, for a part of Ubuntu",
        section=row["section"],
        depends=tuple(row.get("depends", ())),
        provides=tuple(row.get("provides", ())),
        binaries={f"/usr/bin/x86_64-linux-gnu-{program}": EMPTY} if program else {},
        links={f"/usr/bin/{program}": f"x86_64-linux-gnu-{program}"} if program else {},
        folder="dkms" if row["name"] == "dkms" else "empty",
    )


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


def _of_modules(found: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the contents of the packages with the driver's modules for one kernel."""
    folders, latelink, kernel = found["folders"], found["latelink"], values["release"]
    modules = f"/lib/modules/{kernel}"
    facts = {"release": kernel, "trigger": found["trigger"].format(**values)}
    linked = {
        "folder": folders["proprietary"],
        "objects": folders["objects"],
        "question": latelink["question"],
        "answer": latelink["file"],
    }
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
    }


def _of_kernel(found: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the contents of the packages of one kernel."""
    kernel = values["release"]
    modules, headers = f"/lib/modules/{kernel}", f"/usr/src/linux-headers-{kernel}"
    compiler = f'CONFIG_CC_VERSION_TEXT="{found["compiler"]}"\n'
    return {
        f"linux-image-{kernel}": {
            "folder": "ubuntu-image",
            "facts": {"release": kernel, "trigger": found["trigger"].format(**values)},
            "binaries": {f"/boot/vmlinuz-{kernel}": EMPTY},
        },
        f"linux-modules-{kernel}": {
            # The real initramfs-tools reads it.
            "files": {f"/boot/config-{kernel}": f"{compiler}CONFIG_RD_ZSTD=y\n"},
            "binaries": {
                f"{modules}/modules.order": EMPTY,
                f"{modules}/modules.builtin": EMPTY,
                f"{modules}/modules.builtin.modinfo": EMPTY,
            },
        },
        f"linux-headers-{kernel}": {
            "files": {f"{headers}/.config": compiler},
            "binaries": {f"{headers}/Makefile": EMPTY},
            "links": {f"{modules}/build": headers},
        },
    }


def _contents_of_nvidia(version: str, silicon: Path) -> dict[str, dict[str, Any]]:
    def built(flavour: str) -> dict[str, Any]:
        words = shlex.quote(build_faults.words()["compiler-old"])
        facts = {"driver": version, "flavour": flavour, "module": "nvidia", "words": words}
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


def suites(archive: str, system: str) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Yield the suites of an archive: name, pool, components, origin.

    What is in the security updates is in the updates, too.
    """
    found = record(system)["system"]
    base, updates, security = found["suites"]
    for suite, of in ((base, base), (updates, updates), (security, updates)):
        yield suite, f"{archive}/{of}", tuple(found["components"]), found["origin"]


def sources(system: str, address: str, keyring: str) -> dict[str, str]:
    """Return the sources of an installation, with the laboratory's mirror as the archive."""
    found, path = record(system)["system"], archive_of(system)
    base, updates, security = found["suites"]
    components = " ".join(found["components"])
    if found["sources"].endswith(".list"):
        lines = (
            f"deb [signed-by={keyring}] {address}/{path}/ {suite} {components}\n"
            for suite in found["suites"]
        )
        return {found["sources"]: "".join(lines)}
    text = "\n".join(
        f"Types: deb\n"
        f"URIs: {address}/{path}/\n"
        f"Suites: {suites}\n"
        f"Components: {components}\n"
        f"Signed-By: {keyring}\n"
        for suites in (f"{base} {updates}", security)
    )
    return {
        "/etc/apt/sources.list": f"# The sources are in {found['sources']}\n",
        found["sources"]: text,
    }
