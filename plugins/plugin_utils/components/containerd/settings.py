# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What must containerd's configuration contain for the NVIDIA runtime, and in which file?

The additions use the version of the existing configuration, because containerd migrates a file as
a whole. Two versions in one file, or a newer drop-in with an older file, lose settings or stop
containerd, depending on its version.

Source: https://github.com/containerd/containerd/blob/main/docs/cri/config.md
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from ansible_collections.metal.gpu.plugins.module_utils.read.version import release
from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd.observed import (
    Containerd,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Edit

RUNTIME_TYPE = "io.containerd.runc.v2"
CONFIG = "/etc/containerd/config.toml"
DROP_IN = "99-metal-gpu.toml"

# Older versions cannot read CDI specifications of version 0.7.0, which the toolkit writes.
CDI_SINCE = "1.7.16"

# Since this version, an imported file adds to a plugin's section. Before, it replaces the whole
# section, and a list of runtimes replaces the built-in list, which has runc.
# Source: https://github.com/containerd/containerd/issues/5837; `config dump` of 1.6.20.
_MERGES_SINCE = (2, 1)
_VERSION_3_SINCE = (2, 0)


def cri_plugin(config_version: int | None) -> str:
    """Return the table of the CRI runtime; a file without a version has version 1."""
    match config_version:
        case None | 0 | 1:
            return "cri"
        case 2:
            return "io.containerd.grpc.v1.cri"
        case _:
            return "io.containerd.cri.v1.runtime"


def new_config_version(containerd_version: str) -> int:
    """Return the configuration version for a new file."""
    return 3 if release(containerd_version) >= _VERSION_3_SINCE else 2


def reads_cdi(containerd_version: str) -> bool:
    return release(containerd_version) >= release(CDI_SINCE)


def merges(containerd_version: str) -> bool:
    """Whether an imported file adds to a plugin's settings instead of replacing them."""
    return release(containerd_version) >= _MERGES_SINCE


def target(path: str, imports: Sequence[str], containerd_version: str) -> str:
    """Return the file to write: a separate drop-in if that is safe, else the main file."""
    if merges(containerd_version):
        for pattern in map(PurePosixPath, imports):
            if pattern.name == "*.toml" and pattern.is_absolute():
                return str(pattern.with_name(DROP_IN))
    return path


def runtime_keys(
    config_version: int | None,
    *,
    systemd_cgroup: bool,
    default: str | None,
    enable_cdi: bool,
    keep_runc: str | None,
) -> dict[str, object]:
    """Return the keys that register the NVIDIA runtime, for a file of this version.

    `enable_cdi` writes the switch; it is needless if CDI is on already. `keep_runc` also writes the
    runtime runc, with this type.
    """
    # All handlers that use runc must have the same cgroup manager as the kubelet.
    options = {"SystemdCgroup": systemd_cgroup}
    runtimes: dict[str, object] = {
        runtime.NAME: {
            "runtime_type": RUNTIME_TYPE,
            "options": {"BinaryName": runtime.PROGRAM, **options},
        }
    }
    if keep_runc:
        runtimes["runc"] = {"runtime_type": keep_runc, "options": options}
    containerd: dict[str, object] = {"runtimes": runtimes}
    if default:
        containerd["default_runtime_name"] = default
    plugin: dict[str, object] = {"containerd": containerd}
    if enable_cdi:
        plugin["enable_cdi"] = True
    return {"plugins": {cri_plugin(config_version): plugin}}


def edit(engine: Containerd, version: str, *, default: str | None, cdi: bool) -> Edit:
    """Return the file to edit (path) and the keys to merge into it (merge).

    `default` is the desired default runtime; None keeps the current one. `cdi` turns CDI on if it
    is off. `engine` is `engines.containerd` of an observation. The NVIDIA runtime gets the cgroup
    driver of the configured runc.
    """
    config = engine["config"]
    runc = engine["runtimes"].get("runc")
    config_version = config["version"] if config["exists"] else new_config_version(version)
    path = config["path"] or CONFIG
    if config["exists"]:
        path = target(path, config["imports"], version)
    keys = runtime_keys(
        config_version,
        systemd_cgroup=runc is not None and runc["systemd_cgroup"],
        default=default,
        enable_cdi=cdi and reads_cdi(version) and not engine["cdi_enabled"],
        keep_runc=runc["type"] or RUNTIME_TYPE if runc and not merges(version) else None,
    )
    # Only our own file needs a version. An existing file has one, or is version 1.
    own = not config["exists"] or path != config["path"]
    if own and config_version is not None:
        keys = {"version": config_version, **keys}
    return {"path": path, "merge": keys}
