# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes that run a simulated kernel, as the key `kernel` of a node says.

Their `uname`, /proc/version and osrelease show it, and a reboot starts the newest one that is
installed. The kernel itself is still that of this machine.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from metal_lab import kernel_packages, nodes
from metal_lab.cache import FILES, built, digest
from metal_lab.description import Node
from metal_lab.state import State

UNAME = FILES / "kernel" / "uname.c"
_LIBRARY = "usr/local/lib/metal-lab/uname.so"
_INSTALL = """
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get --quiet=2 update
apt-get --quiet=2 install "$@" > /dev/null
rm --recursive /var/lib/apt/lists/* /var/cache/apt/*.bin
echo "$RELEASE" > /run/metal-lab/kernel-release
exec /usr/bin/python3 /usr/local/lib/metal-lab/hardware.py boot
"""


def files(node: Node) -> dict[str, bytes]:
    """Return the files of a node that let it run another kernel, keyed by path."""
    if not node.kernel:
        return {}
    library = built("uname", digest(UNAME), "the stand-in for uname", _build_uname) / "uname.so"
    return {_LIBRARY: library.read_bytes(), "etc/ld.so.preload": f"/{_LIBRARY}\n".encode()}


def _build_uname(out: Path) -> None:
    options = ("-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-s")
    subprocess.run(["gcc", *options, "-o", out / "uname.so", UNAME], check=True)


def start(state: State, node: Node) -> None:
    """Install the kernel of a node from the mirror, and run it."""
    if not node.kernel:
        return
    release = kernel_packages.parse(node.kernel)
    wanted = (
        f"linux-image-{release.flavour}={release.version}",
        f"linux-image-{release.name}={release.version}",
    )
    script = _INSTALL.replace("$RELEASE", release.name)
    nodes.execute(state, node.name, ["sh", "-c", script, "kernel", *wanted])
