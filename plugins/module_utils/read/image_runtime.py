# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Does anybody compare an image with the driver before a Docker host starts it?

NVIDIA's hook of the legacy mode does, and so does the mode of Tegra. CDI and the modes that use it
do not. Only the hook reads `disable-require`.

Source: tests/recorded/image_needs.yml, requirements
"""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.read.version import release

# How a container gets GPUs: by `--gpus`, or by the runtime `nvidia` and the environment.
GPUS, RUNTIME = "gpus", "runtime"

# From this version of the toolkit on, the runtime `nvidia` makes CDI specifications itself.
_RUNTIME_BY_CDI_SINCE = (1, 18)
_AUTOMATIC, _LEGACY, _TEGRA = ("", "auto"), "legacy", "csv"


class Host(NamedTuple):
    """What decides it."""

    way: str  # GPUS or RUNTIME
    gpus_by_cdi: bool  # as docker.gives_gpus_by_cdi says of `--gpus`
    toolkit: str | None  # the version of NVIDIA's container toolkit
    mode: str | None = None  # of its runtime, as its configuration says; None: the default
    is_disabled: bool = False  # the toolkit's configuration says `disable-require = true`


def compares(host: Host) -> bool:
    """Tell whether NVIDIA's software compares an image with the driver of a host."""
    if host.way == RUNTIME:
        mode = host.mode or ""
        if mode in _AUTOMATIC:
            mode = _LEGACY if release(host.toolkit or "") < _RUNTIME_BY_CDI_SINCE else ""
        return mode == _TEGRA or (mode == _LEGACY and not host.is_disabled)
    return not host.gpus_by_cdi and not host.is_disabled
