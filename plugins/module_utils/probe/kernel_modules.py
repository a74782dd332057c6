# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Read what decides whether the driver's module exists, loads, and exists after the next boot.

Every function does I/O. None runs a program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.probe.node_files import NodeFiles
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    dkms,
    kernels,
    nvidia_driver,
    signing,
    systemd,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.os_release import parse_os_release

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading

_BUILD = "/lib/modules/{release}/build"
_START_BYTES = 4096


def has_headers(reading: Reading, release: str) -> bool:
    return reading.files.exists(_BUILD.format(release=release))


def releases(reading: Reading) -> list[str]:
    """Return the installed kernels, the newest last."""
    return kernels.releases(reading.files.find(kernels.IMAGES), reading.release)


def read_next_kernel(reading: Reading) -> kernels.Kernel | None:
    """Read the kernel that boots next; None if it is the running one."""
    newest = next(iter(reversed(releases(reading))), reading.release)
    if newest == reading.release:
        return None
    return {
        "release": newest,
        "headers": has_headers(reading, newest),
        "module": bool(nvidia_driver.parse_modules_dep(read_modules_dep(reading, newest))),
    }


def read_modules_dep(reading: Reading, release: str) -> str:
    """Read the list of a kernel's modules. It is long and stays on the node."""
    path = nvidia_driver.MODULES_DEP.format(release=release)
    return NodeFiles(reading.node.root).read(path) or ""


def read_build_logs(reading: Reading) -> dict[str, dkms.Log]:
    """Read the start and the end of the logs of failed builds, by path."""
    paths = filter(dkms.is_log, reading.files.find(dkms.LOGS))
    return {path: _read_ends(reading.node.root / path.lstrip("/")) for path in paths}


def _read_ends(path: Path) -> dkms.Log:
    try:
        with path.open("rb") as file:
            start = file.read(_START_BYTES)
            file.seek(max(0, path.stat().st_size - dkms.END_BYTES))
            end = file.read(dkms.END_BYTES)
    except OSError:
        return dkms.NO_LOG
    return {"start": start.decode(errors="replace"), "end": end.decode(errors="replace")}


def find_signing_files(reading: Reading) -> signing.Files | None:
    """Look for the two files with which DKMS signs modules, if that matters. None of them is read.

    Without knowing which pair signs, none is missing.
    """
    pair = _find_pair(reading)
    if pair is None:
        return None
    line = signing.not_understood(pair)
    paths = [] if line else [path for path in pair if signing.is_path(path)]
    missing = [path for path in paths if not reading.files.exists(path)]
    key, certificate = pair
    return {
        "private_key": key,
        "certificate": line or (None if certificate in missing else certificate),
        "missing_key": key if key in missing else None,
        "missing_certificate": certificate if certificate in missing else None,
    }


def _find_pair(reading: Reading) -> signing.Pair | None:
    """Return the files with which DKMS signs modules, if that matters."""
    if not signing.has_secure_boot(reading.files.texts):
        return None
    files = NodeFiles(reading.node.root)
    files.read_all(signing.SETTINGS)
    system = parse_os_release(reading.files.texts.get("/etc/os-release", ""))["id"]
    return signing.pair(system, [files.texts[path] for path in sorted(files.texts)])


def find_persistence_off(reading: Reading) -> str | None:
    """Return the file of the persistence daemon's unit that turns the mode off."""
    files = NodeFiles(reading.node.root)
    for directory in systemd.UNIT_DIRECTORIES:
        files.read(f"{directory}/{nvidia_driver.PERSISTENCED}")
    files.read_layered(
        [f"{one}/{nvidia_driver.PERSISTENCED}.d" for one in systemd.UNIT_DIRECTORIES], "*.conf"
    )
    words = systemd.parse_service(files.texts, nvidia_driver.PERSISTENCED).words
    return next((word.file for word in words if word.text == nvidia_driver.PERSISTENCE_OFF), None)
