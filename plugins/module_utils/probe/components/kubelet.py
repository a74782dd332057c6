# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read about the kubelet and its control groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.probe import distribution, own_files
from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
from ansible_collections.metal.gpu.plugins.module_utils.probe.services import Kind
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    distributions,
    kubelet,
    kubelet_devices,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import Flag, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading
    from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output

# Only the kubelet's own lines, without systemd's. There are 200 of them, because a kubelet with an
# unknown gate in its configuration file panics with a long trace.
_JOURNAL = (
    *("journalctl", f"_SYSTEMD_UNIT={kubelet.UNIT}", "--lines=200"),
    *("--output=short", "--no-hostname", "--no-pager"),
)


class Values(TypedDict):
    """What only this component reads."""

    joined_name: str | None
    devices: kubelet_devices.Devices | None
    embedded: distribution.KubeletData | None  # None: kubelet.service


def _flags(reading: Reading) -> Iterable[Flag]:
    """Return the flags of the kubelet, which can be a process of a distribution."""
    embedded = distribution.read_kubelet(reading)
    if embedded:
        return tuple(Flag(**flag) for flag in embedded["flags"])
    return reading.services[kubelet.UNIT].in_force


def _read(reading: Reading) -> None:
    flags = _flags(reading)
    path, directory = value_of(flags, "--config"), value_of(flags, "--config-dir")
    if path:
        reading.files.read(path)
    if directory:
        reading.files.read_all([f"{directory}/**/*.conf"])


def _values(reading: Reading) -> Values:
    return {
        "joined_name": _read_joined_name(reading),
        "devices": _read_devices(reading),
        "embedded": distribution.read_kubelet(reading),
    }


def _read_devices(reading: Reading) -> kubelet_devices.Devices | None:
    """Return what the kubelet knows about devices. The answers of the plugins stay on the node."""
    checkpoint = reading.unit_files.read(kubelet_devices.CHECKPOINT)
    return None if checkpoint is None else kubelet_devices.parse_checkpoint(checkpoint)


def _read_joined_name(reading: Reading) -> str | None:
    """Return the name under which the kubelet joined a cluster. Keys stay on the node."""
    flags, files = _flags(reading), reading.unit_files
    embedded = distribution.read_kubelet(reading)
    directory = value_of(flags, "--cert-dir") or kubelet.DEFAULT_CERTIFICATE_DIRECTORY
    default = (embedded and embedded["kubeconfig"]) or kubelet.DEFAULT_KUBECONFIG
    path = value_of(flags, "--kubeconfig") or default
    kubeconfig = files.read(path) or ""
    certificates = (
        f"{directory}/{kubelet.CURRENT_CERTIFICATE}",
        kubelet.certificate_file(path, kubeconfig),
    )
    texts = [files.read(file) or "" for file in certificates if file]
    return next(filter(None, map(kubelet.joined_name, (*texts, kubeconfig))), None)


def _commands(reading: Reading) -> dict[str, Command]:
    home = distribution.find_home(reading)
    if home:  # its version is that of the kubelet in it
        return {"kubelet": Command((distribution.starter(reading), home.version))}
    return {"kubelet": Command(("kubelet", "--version"))}


def _follow_up(reading: Reading, outputs: Mapping[str, Output]) -> dict[str, Command]:
    if distribution.find_home(reading):
        return {}
    state = reading.units.get(kubelet.UNIT, {}).get("ActiveState", "active")
    return {"journal": Command(_JOURNAL)} if "kubelet" in outputs and state != "active" else {}


PROBE = Probe(
    units=tuple(distributions.UNSUPPORTED),
    services={
        kubelet.UNIT: Kind("kubelet", kubelet.FLAGS, kubelet.ENVIRONMENT_FILES),
        **{unit: Kind(home.name.lower()) for home in distributions.HOMES for unit in home.units},
    },
    named_services={distributions.NAMED_FILES: Kind("k3s")},
    exists={
        "cgroup": "/sys/fs/cgroup",
        "cgroup_v2": "/sys/fs/cgroup/cgroup.controllers",
    },
    found={"k3s_rootless": distributions.ROOTLESS_PATTERNS},
    programs=("kubelet",),
    own_files={own_files.KUBELET_DROP_IN: "kubelet_device_plugins"},
    read=_read,
    values=_values,
    commands=_commands,
    follow_up=_follow_up,
)
