# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Understand Docker's state: what the running engine answers, else what its file says. No I/O.

Source: https://docs.docker.com/reference/cli/dockerd/; `docker info` of 20.10.24.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.mappings import section, sections
from ansible_collections.metal.gpu.plugins.module_utils.version import release

if TYPE_CHECKING:
    from collections.abc import Mapping

UNIT = "docker.service"
DEFAULT_CONFIG = "/etc/docker/daemon.json"
DEFAULT_RUNTIME = "runc"
INFO = ("docker", "info", "--format={{json .}}")

_CDI_DEFAULT_SINCE = (28, 2)
_CGROUP_DRIVER = "native.cgroupdriver="


class Runtime(NamedTuple):
    """A way to start containers."""

    type: str | None  # of a containerd shim; None: an OCI runtime
    binary: str | None


class Effective(NamedTuple):
    """What holds for the containers that Docker starts."""

    default_runtime: str
    runtimes: Mapping[str, Runtime]
    cgroup_driver: str | None
    cdi_enabled: bool


def parse_info(stdout: str) -> dict[str, Any] | None:
    """Parse `docker info`; None where no engine answered, though the client prints a form."""
    try:
        info = json.loads(stdout)
    except ValueError:
        return None
    return info if isinstance(info, dict) and info.get("ServerVersion") else None


def effective_from_info(info: Mapping[str, Any]) -> Effective:
    return Effective(
        default_runtime=info.get("DefaultRuntime") or DEFAULT_RUNTIME,
        runtimes=_parse_runtimes(sections(info, "Runtimes")),
        cgroup_driver=info.get("CgroupDriver") or None,
        cdi_enabled=bool(info.get("CDISpecDirs")),  # empty where it is off or unknown
    )


def effective_from_file(document: Mapping[str, Any], version: str) -> Effective:
    """Read daemon.json as an engine of this version will."""
    options = document.get("exec-opts")
    drivers = [
        option[len(_CGROUP_DRIVER) :]
        for option in (options if isinstance(options, list) else ())
        if isinstance(option, str) and option.startswith(_CGROUP_DRIVER)
    ]
    cdi_default = release(version) >= _CDI_DEFAULT_SINCE
    return Effective(
        default_runtime=document.get("default-runtime") or DEFAULT_RUNTIME,
        runtimes=_parse_runtimes(sections(document, "runtimes")),
        cgroup_driver=drivers[-1] if drivers else None,
        cdi_enabled=section(document, "features").get("cdi", cdi_default),
    )


def _parse_runtimes(runtimes: Mapping[str, Mapping[str, Any]]) -> dict[str, Runtime]:
    return {
        name: Runtime(type=runtime.get("runtimeType"), binary=runtime.get("path"))
        for name, runtime in runtimes.items()
    }
