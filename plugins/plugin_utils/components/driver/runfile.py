# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's `.run` file: its name, the options that its installer knows, and what prevents it. Pure.

The options are those that the installer's own table has had, from branch 390 to 590.48.01.
An installer ends with an error if it does not know an option, so no version gets one that is newer.

Source: option_table.h and backup.c of NVIDIA/nvidia-installer, read on 2026-10-08 and 2026-11-23
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ansible_collections.metal.gpu.plugins.module_utils.read.gpu_models import OPEN, branch

# The entry of the driver in the role's record of packages. No package can have this name.
ENTRY = ".run"
ARCHITECTURE = "x86_64"
FIRST_BRANCH = 390  # of the recorded tables of options
# Two copies of a file of 400 MB (580.159.03), what is in it, and the build. The sum is a guess.
NEEDED_MIB = 3072

_NAME = re.compile(
    r"NVIDIA-Linux-(?P<architecture>x86_64|x86|aarch64|armv7l-gnueabihf|ppc64le)"
    r"-(?P<version>\d{3}(?:\.\d+)+)(?:-[\w.-]+)?\.run"
)
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")

# For a node that computes: no question is asked, and no library of a desktop is installed.
_ALWAYS = ("--silent", "--accept-license", "--no-opengl-files", "--no-install-compat32-libs")
_DKMS = "--dkms"
# The kernel module in the words of each age of the installer, the newest first. Before the last,
# there was only the proprietary module. Where the value is not given, it is the flavour itself.
_MODULE: tuple[tuple[tuple[int, ...], str, dict[str, str]], ...] = (
    ((620,), "", {}),  # only the open module is left; whether an option remains is unproven
    ((555, 42, 2), "--kernel-module-type", {}),
    (
        (470, 42, 1),
        "--kernel-module-build-directory",
        {"open": "kernel-open", "proprietary": "kernel"},
    ),
)


class RunFile(NamedTuple):
    """What the name of a file tells; None: the name has another form."""

    architecture: str | None
    version: str | None


class Place(NamedTuple):
    """What the node has for an installer."""

    free_mib: int | None  # None: unknown
    runs_programs: bool | None  # whether the file system allows it
    displays: list[str]  # of X servers that run
    stops: bool = False  # a file of packages forbids it


def parse_name(url: str) -> RunFile:
    """Read the architecture and the version from a URL or a path."""
    path = urlsplit(url).path if "://" in url else url
    match = _NAME.fullmatch(unquote(path).rpartition("/")[2])
    return RunFile(match["architecture"], match["version"]) if match else RunFile(None, None)


def invalid(url: str, sha256: str, version: str) -> list[tuple[str, str, str]]:
    """Return which variables cannot be used: name, what was found, and what is expected.

    The address can have a password, so no text quotes it.
    """
    found = []
    if not url:
        expected = "the URL of a .run file, or its path on the controller"
        found.append(("nvidia_driver_runfile_url", "not set", expected))
    elif not (version or parse_name(url).version):
        expected = "the version of the .run file, because the name of the file does not tell it"
        found.append(("nvidia_driver_version", "not set", expected))
    if not _SHA256.fullmatch(sha256):
        shown = f"{len(sha256)} characters long" if sha256 else "not set"
        if len(sha256) == 64:
            shown = "no hexadecimal number"
        expected = (
            "the 64 hexadecimal digits of the SHA-256 of the .run file, because its installer runs "
            "as root"
        )
        found.append(("nvidia_driver_runfile_sha256", shown, expected))
    return found


def options(version: str, flavour: str, *, has_dkms: bool = True) -> list[str]:
    """Return the options for the installer of a version.

    With DKMS, the module is also built for later kernels. DKMS signs it if it has a key.
    """
    return [*_ALWAYS, *((_DKMS,) if has_dkms else ()), *_module(version, flavour)]


def _module(version: str, flavour: str) -> list[str]:
    numbers = tuple(int(one) for one in version.split("."))
    for first, option, values in _MODULE:
        if numbers >= first:
            value = values.get(flavour, flavour)
            # The default of the older option, which is the proprietary module.
            is_default = bool(values) and flavour != OPEN
            return [] if not option or is_default else [f"{option}={value}"]
    return []


def problems(url: str, version: str, place: Place) -> list[str]:
    """Return everything that prevents the installation on a node, one sentence each."""
    name = parse_name(url)
    found = []
    if name.architecture not in (None, ARCHITECTURE):
        found.append(f"it is for {name.architecture}, and the node is {ARCHITECTURE}")
    if name.version not in (None, version):
        found.append(f"it has driver {name.version}, and nvidia_driver_version is {version}")
    if branch(version) < FIRST_BRANCH:
        found.append(f"the options of installers before branch {FIRST_BRANCH} are not recorded")
    if place.free_mib is not None and place.free_mib < NEEDED_MIB:
        found.append(f"/var/lib has {place.free_mib} MiB free, and it needs {NEEDED_MIB}")
    if place.runs_programs is False:
        found.append("/var/lib is mounted with noexec")
    if place.displays:
        found.append(f"an X server runs (display {', '.join(place.displays)})")
    if place.stops:
        found.append("/usr/lib/nvidia/alternate-install-present of another driver forbids it")
    return found
