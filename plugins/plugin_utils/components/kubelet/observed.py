# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about the kubelet and the control groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

from ansible_collections.metal.gpu.plugins.module_utils.observed.containers import (
    Cgroup,
    Kubelet,
    KubeletPart,
)
from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import Program
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.kubelet import Values
from ansible_collections.metal.gpu.plugins.module_utils.probe.distribution import KubeletData
from ansible_collections.metal.gpu.plugins.module_utils.probe.services import PROCESS
from ansible_collections.metal.gpu.plugins.module_utils.read import distributions, kubelet
from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import Flag, value_of
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import home as homes
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw, as_flags
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.load import Document, load_yaml


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


def observe(raw: Raw) -> KubeletPart:
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
