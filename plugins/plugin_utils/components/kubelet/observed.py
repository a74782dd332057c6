# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about the kubelet and the control groups. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypedDict, cast

from ansible_collections.metal.gpu.plugins.module_utils.probe.components.kubelet import Values
from ansible_collections.metal.gpu.plugins.module_utils.probe.distribution import KubeletData
from ansible_collections.metal.gpu.plugins.module_utils.probe.raw_data import FlagData
from ansible_collections.metal.gpu.plugins.module_utils.probe.services import PROCESS
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    distributions,
    kubelet,
    kubelet_devices,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import Flag, value_of
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import (
    home as homes,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Program, Raw, as_flags
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.load import Document, load_yaml


class UnitState(TypedDict):
    """The state of the unit, as systemd reports it."""

    active: str | None
    sub: str | None
    result: str | None


class File(TypedDict):
    """A configuration file: why it is invalid, and why it cannot be edited."""

    path: str
    error: str | None  # why it cannot be read
    obstacle: str | None  # why it cannot be edited


class Config(TypedDict):
    """The file of --config."""

    path: str | None
    exists: bool | None
    error: str | None  # why it cannot be read
    obstacle: str | None  # why it cannot be edited, although the kubelet reads it


class ConfigDir(TypedDict):
    """The directory of --config-dir."""

    path: str | None
    files: list[File]  # its files


class Kubelet(Program):
    """The kubelet."""

    unit_state: UnitState  # words of systemd
    # the Kubernetes distribution that contains it, such as k3s
    distribution: distributions.Distribution | None
    # distribution that a user runs without root, if there is no other kubelet
    rootless: distributions.Distribution | None
    # name in the cluster: `--hostname-override`, else `joined_name`, else `hostname`
    node_name: str
    # name at its next start; None if a cloud provider, a shell or systemd decides
    own_name: str | None
    joined_name: str | None  # name in its client certificate
    # devices of `nvidia.com` in its checkpoint, an internal file
    devices: kubelet_devices.Devices | None
    flags_source: str | None  # `process`, or `unit` if these are flags that systemd would use
    flags: list[FlagData]  # flags that are in force or in files
    config: Config  # file of `--config`
    config_dir: ConfigDir  # folder of `--config-dir`
    feature_gates: list[kubelet.Gate]  # places that set a gate
    health_url: str | None  # None: it is disabled
    endpoint: str | None  # socket of the container runtime
    last_error: str | None  # why it failed, from its journal
    needs_reload: bool  # whether files of its unit are newer than what systemd has loaded
    # files of its settings that it has not read since they were written
    changed_since_start: list[str]


class Cgroup(TypedDict):
    """Version and driver of the control groups."""

    version: int | None  # 1 or 2
    driver: str | None  # cgroup driver that is configured for the kubelet


class Observed(TypedDict):
    """The kubelet and its control groups."""

    kubelet: Kubelet
    cgroup: Cgroup  # control groups


class _Setup(NamedTuple):
    """The flags and configuration files of a kubelet."""

    flags: tuple[Flag, ...]  # in force
    path: str | None  # of --config
    config: Document
    directory: str | None  # of --config-dir
    dropins: Mapping[str, Document]  # keyed by path, in the order of reading

    @property
    def documents(self) -> dict[str, Mapping[str, object]]:
        """All configuration, keyed by path; later documents win."""
        own = {self.path: self.config.content} if self.path else {}
        return {**own, **{path: document.content for path, document in self.dropins.items()}}


def observe(raw: Raw) -> Observed:
    setup = _setup(raw)
    return {"kubelet": _kubelet(raw, setup), "cgroup": _cgroup(raw, setup)}


def _setup(raw: Raw) -> _Setup:
    embedded = _values(raw)["embedded"]
    flags = as_flags(embedded["flags"]) if embedded else raw.in_force(kubelet.UNIT)
    path, directory = value_of(flags, "--config"), value_of(flags, "--config-dir")
    return _Setup(
        flags=flags,
        path=path,
        config=load_yaml(path, raw.texts.get(path, "")) if path else Document({}, None),
        directory=directory,
        dropins=_dropins(raw, directory) if directory else {},
    )


def _values(raw: Raw) -> Values:
    return cast(Values, raw.values("kubelet"))


def _program(raw: Raw) -> Program:
    """Return the kubelet. That of a distribution is a part of it, and runs when it runs."""
    embedded = _values(raw)["embedded"]
    if embedded is None:
        return raw.program(kubelet.UNIT, "kubelet", "kubelet")
    unit = embedded["distribution"]["unit"]
    is_active = raw.is_active(unit)
    return {
        "installed": True,
        "path": embedded["path"],
        **raw.version("kubelet", unit if is_active else None),
        "running": is_active,
    }


def _dropins(raw: Raw, directory: str) -> dict[str, Document]:
    pattern = f"{directory}/*.conf"
    read = {path: load_yaml(path, raw.texts[path]) for path in raw.find(pattern)}
    errors = {path: Document({}, raw.read_error(path)) for path in raw.unread(pattern)}
    return dict(sorted({**read, **errors}.items()))


def _kubelet(raw: Raw, setup: _Setup) -> Kubelet:
    program, values = _program(raw), _values(raw)
    embedded = values["embedded"]
    unit = embedded["distribution"]["unit"] if embedded else kubelet.UNIT
    service = raw.service(kubelet.UNIT)
    flags = embedded["flags"] if embedded else service["flags"]
    places = as_flags(flags)
    state = raw.units.get(unit, {})
    hostname = raw.text("/proc/sys/kernel/hostname") or ""
    joined = values["joined_name"]
    return {
        **program,
        "unit_state": {
            "active": state.get("ActiveState"),
            "sub": state.get("SubState"),
            "result": state.get("Result"),
        },
        "distribution": embedded["distribution"] if embedded else None,
        "rootless": distributions.rootless(raw.found["k3s_rootless"]),
        "node_name": kubelet.node_name(setup.flags, joined, hostname),
        "own_name": _own_name(setup, embedded, hostname),
        "joined_name": joined,
        "devices": values["devices"],
        "flags_source": (PROCESS if flags else None) if embedded else service["source"],
        "flags": flags,
        "config": {
            "path": setup.path,
            "exists": raw.file_exists(setup.path),
            "error": raw.read_error(setup.path) or setup.config.error,
            "obstacle": setup.config.obstacle,
        },
        "config_dir": {
            "path": setup.directory,
            "files": [
                {"path": path, "error": document.error, "obstacle": document.obstacle}
                for path, document in setup.dropins.items()
            ],
        },
        "feature_gates": kubelet.feature_gates(places, setup.documents.items()),
        "health_url": kubelet.health_url(setup.flags, list(setup.documents.values())),
        "endpoint": _endpoint(raw, setup, program["version"]),
        "last_error": None
        if embedded or state.get("Result") == "success"
        else kubelet.parse_last_error(raw.stdout("journal")),
        "needs_reload": raw.needs_reload(unit),
        # A distribution writes the files of its kubelet at each start.
        "changed_since_start": []
        if embedded
        else raw.changed_since_start(
            unit, [*(place.file for place in places if place.file), *setup.documents]
        ),
    }


def _own_name(setup: _Setup, embedded: KubeletData | None, hostname: str) -> str | None:
    """Return the name at the next start; None if the kubelet's flags are inside a distribution."""
    if embedded and not setup.flags:
        return None
    return kubelet.own_name(setup.flags, hostname)


def _endpoint(raw: Raw, setup: _Setup, version: str | None) -> str | None:
    """Return the socket of the engine: of the distribution's own one, if nothing names another."""
    home, embedded = homes.data_of(raw), _values(raw)["embedded"]
    default = None if home else version  # the kubelet's default does not count in a distribution
    given = kubelet.endpoint(setup.flags, setup.documents.values(), default)
    given = given or (embedded and embedded["endpoint"])
    return given or (f"unix://{home['socket']}" if home else None)


def _cgroup(raw: Raw, setup: _Setup) -> Cgroup:
    version = None
    if raw.exists["cgroup"]:
        version = 2 if raw.exists["cgroup_v2"] else 1
    driver = None
    # The file that is not there yet, or not valid, has the driver.
    is_known = not setup.path or (raw.file_exists(setup.path) and not setup.config.error)
    if is_known and (raw.programs["kubelet"] or setup.flags):
        driver = kubelet.cgroup_driver(setup.flags, setup.documents.values())
    return {"version": version, "driver": driver}
