# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Does anybody compare an image with the driver before a Docker host starts it? No I/O.

NVIDIA's hook of the legacy mode does, and so does the mode of Tegra. CDI and the modes that use it
do not.

Source: tests/recorded/image_needs.yml, requirements
"""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.read.version import release

# How a container gets GPUs: by `--gpus`, or by the runtime `nvidia` and the environment.
GPUS, RUNTIME = "gpus", "runtime"

# From this version on, `--gpus` uses CDI, if Docker finds the program that CDI needs at its start.
_GPUS_BY_CDI_SINCE = (29, 2)
# From this version of the toolkit on, the runtime `nvidia` makes CDI specifications itself.
_RUNTIME_BY_CDI_SINCE = (1, 18)
_AUTOMATIC, _COMPARING = ("", "auto"), ("legacy", "csv")


class Host(NamedTuple):
    """What decides it."""

    way: str  # GPUS or RUNTIME
    docker: str | None  # its version
    toolkit: str | None  # the version of NVIDIA's container toolkit
    mode: str | None = None  # of its runtime, as its configuration says; None: the default
    has_cdi_hook: bool = True  # the program with which Docker gives GPUs by CDI
    is_disabled: bool = False  # the toolkit's configuration says `disable-require = true`


def compares(host: Host) -> bool:
    """Tell whether NVIDIA's software compares an image with the driver of a host."""
    if host.is_disabled:
        return False
    if host.way == RUNTIME:
        mode = host.mode or ""
        if mode in _AUTOMATIC:
            return release(host.toolkit or "") < _RUNTIME_BY_CDI_SINCE
        return mode in _COMPARING
    return release(host.docker or "") < _GPUS_BY_CDI_SINCE or not host.has_cdi_hook
