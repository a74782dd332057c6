# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse the state of DKMS and the log of a failed build.

The state comes from the paths below /var/lib/dkms, which have the same form in every version. The
lines of `dkms status` do not: DKMS 2 writes "nvidia, 1.0, 6.1: installed", DKMS 3 writes
"nvidia/1.0, 6.1, x86_64: installed".

Source: dkms(8); words of failed builds in tests/unit/fixtures/dkms
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_driver import (
    MODULE,
    is_module_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Sources of a module, the modules that were built, by kernel, and the log of a failed build. Debian
# names the module nvidia-current, NVIDIA names it nvidia.
_FOLDER, _LOG = "/var/lib/dkms", "build/make.log"
SOURCES = f"{_FOLDER}/nvidia*/*/source"
MODULES = f"{_FOLDER}/nvidia*/*/*/*/module/nvidia*.ko*"
LOGS = f"{_FOLDER}/nvidia*/*/{_LOG}"
# DKMS creates it after the compiler has ended, and before it stores the modules.
FINISHING = f"{_FOLDER}/nvidia*/*/*/*/log"
# Where packages and the installer of a `.run` file put a source. DKMS links to it.
TREES = "/usr/src/nvidia*/dkms.conf"
# How much of a log is read, from its end.
END_BYTES = 65536
# DKMS's name and version of the driver: nvidia-srv is Ubuntu's driver for servers. nvidia-fs is not
# part of it, but GPUDirect Storage.
_PATH = re.compile(rf"{_FOLDER}/(?P<source>(?:{MODULE}|nvidia-srv)/[^/]+)/(?P<rest>.+)")
_TREE = re.compile(rf"/usr/src/(?P<name>{MODULE}|nvidia-srv)-(?P<version>\d[^/]*)/dkms\.conf")
# "DKMS (dkms-3.3.0) make.log for nvidia/580.105.08 for kernel 6.17.11-061711-generic (x86_64)"
_KERNEL = re.compile(r"^DKMS\b.*\bmake\.log for .+ for kernel (?P<release>\S+)", re.MULTILINE)
# What compilers, the kernel's build and the driver's own checks print. The words about a program
# that is missing, and make's "*** [file] Error 1", can follow from one of these, so they count only
# without one.
_ERROR = re.compile(r"^.*\b(?:fatal error|error|ERROR)\b ?:.*$", re.MULTILINE)
_NO_PROGRAM = re.compile(
    r"^(?:make|\S*sh)\b.*: (?:(?:command )?not found|No such file or directory)$", re.MULTILINE
)
_CONSEQUENCE = re.compile(
    r"^.*(?:\*\*\* .*|No space left on device.*|Failed CC version check.*)$", re.MULTILINE
)
_QUOTED, _LENGTH = 3, 200


class Log(TypedDict):
    """The ends of the log of a failed build; they can overlap."""

    start: str
    end: str


NO_LOG: Log = {"start": "", "end": ""}


class Build(TypedDict):
    """State of one source of the driver's module."""

    built: bool | None  # whether there is a module for the running kernel; None without source
    kernels: list[str]  # kernels for which a module was built
    unfinished: list[str]  # kernels whose build was interrupted: DKMS needs `dkms remove` first
    log: str | None  # path of the log of a failed build
    failed: str | None  # kernel of the failed build of `log`
    error: str | None  # first errors at the end of `log`


class Dkms(Build):
    """State of the driver's module in DKMS: of all sources together, and of each."""

    sources: list[str]  # names and versions that DKMS has, such as `nvidia/580.178.04`
    addable: list[str]  # sources in `/usr/src`, which `dkms install` adds by itself
    builds: dict[str, Build]  # state of each source


def parse(paths: Iterable[str], release: str | None, logs: Mapping[str, Log]) -> Dkms:
    """Derive the state of the driver's module from the paths below /var/lib/dkms and /usr/src.

    `logs` are the texts of the logs, by their paths.
    """
    by_source: dict[str, list[str]] = {}
    trees = []
    for path in paths:
        if match := _PATH.fullmatch(path):
            by_source.setdefault(match["source"], []).append(match["rest"])
        elif match := _TREE.fullmatch(path):
            trees.append(f"{match['name']}/{match['version']}")
    builds = {
        source: _parse_build(source, rests, release, logs) for source, rests in by_source.items()
    }
    return join(builds, trees)


def join(builds: Mapping[str, Build], trees: Iterable[str] = ()) -> Dkms:
    """Return the state of several sources together. Of the logs, the first one counts.

    `trees` are the sources in /usr/src.
    """
    sources = [source for source, one in builds.items() if one["built"] is not None]
    logged = next((one for one in builds.values() if one["log"]), None)
    return {
        "built": any(one["built"] for one in builds.values()) if sources else None,
        "kernels": sorted({release for one in builds.values() for release in one["kernels"]}),
        "unfinished": sorted({release for one in builds.values() for release in one["unfinished"]}),
        "sources": sources,
        "addable": sorted({*trees}.difference(sources)),
        "log": logged and logged["log"],
        "failed": logged and logged["failed"],
        "error": logged and logged["error"],
        "builds": {**builds},
    }


def _parse_build(
    source: str, rests: Sequence[str], release: str | None, logs: Mapping[str, Log]
) -> Build:
    """Return the state of one source from the paths below its folder."""
    kernels = {rest.partition("/")[0] for rest in rests if is_module_file(rest)}
    path = f"{_FOLDER}/{source}/{_LOG}" if _LOG in rests else None
    log = logs.get(path or "", NO_LOG)
    kernel = _KERNEL.search(log["start"])
    finishing = {rest.partition("/")[0] for rest in rests if rest.endswith("/log")}
    return {
        "built": release in kernels if "source" in rests else None,
        "kernels": sorted(kernels),
        "unfinished": sorted(finishing - kernels),
        "log": path,
        "failed": kernel["release"] if kernel else None,
        "error": parse_log(log["end"]),
    }


def is_log(path: str) -> bool:
    """Return whether a file is the log of the driver, and not of another module."""
    return bool(_PATH.fullmatch(path))


def parse_log(text: str) -> str | None:
    """Return the first errors in the log of a build; None if it has none that is known."""
    found = _ERROR.findall(text) or _NO_PROGRAM.findall(text) or _CONSEQUENCE.findall(text)
    lines = list(dict.fromkeys(" ".join(line.split()) for line in found))[:_QUOTED]
    shown = ("".join(one if one.isprintable() else "?" for one in line) for line in lines)
    return "; ".join(line[:_LENGTH] for line in shown) or None
