# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What must containerd's configuration contain for the NVIDIA runtime, and in which file?

The additions use the version of the existing configuration, because containerd migrates a file as
a whole. Two versions in one file, or a newer drop-in with an older file, lose settings or stop
containerd, depending on its version.

Source: https://github.com/containerd/containerd/blob/main/docs/cri/config.md
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import (
    Containerd,
    ContainerdConfig,
)
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import containerd
from ansible_collections.metal.gpu.plugins.module_utils.read.containerd import Runtime
from ansible_collections.metal.gpu.plugins.module_utils.read.kubelet import ASKS_CRI_SINCE
from ansible_collections.metal.gpu.plugins.module_utils.read.version import release
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Edit, changes

RUNTIME_TYPE = "io.containerd.runc.v2"
CRI_VERSION_3 = "io.containerd.cri.v1.runtime"
CONFIG = "/etc/containerd/config.toml"
DROP_IN = "99-metal-gpu.toml"
_RUNC, _RUNC_TYPES = "runc", "io.containerd.runc."

# Older versions cannot read CDI specifications of version 0.7.0, which the toolkit writes.
CDI_SINCE = "1.7.16"

# Since this version, an imported file adds to a plugin's section. Before, it replaces the whole
# section, and a list of runtimes replaces the built-in list, which has runc.
# Source: tests/recorded/containerd.yml, imports
_MERGES_SINCE = (2, 0)
_VERSION_3_SINCE = (2, 0)
_READS_VERSION_1_AGAIN = (2, 3)
_TELLS_SINCE = (2, 0)  # the kubelet which cgroup driver its default runtime has


def cri_plugin(
    config_version: int | None, containerd_version: str = "", found: Sequence[str] = ()
) -> str:
    """Return the table of the CRI runtime; a file without a version has version 1.

    containerd 2 ignores the table of an older version if the file has one of version 3, too; its
    first releases do the reverse. Azure's nodes have a file of version 2 with only the table of
    version 3. Up to 2.2, containerd 2 reads no table of version 1 either, even in a file without a
    version, and then those of version 3. Source: tests/recorded/containerd.yml
    """
    if CRI_VERSION_3 in found and release(containerd_version) >= _VERSION_3_SINCE:
        older = [name for name in found if name != CRI_VERSION_3]
        if not older or not containerd.needs_migration(containerd_version):
            return CRI_VERSION_3
    match config_version:
        case None | 0 | 1:
            ignores_it = _VERSION_3_SINCE <= release(containerd_version) < _READS_VERSION_1_AGAIN
            return CRI_VERSION_3 if ignores_it else "cri"
        case 2:
            return "io.containerd.grpc.v1.cri"
        case _:
            return CRI_VERSION_3


def new_config_version(containerd_version: str) -> int:
    """Return the configuration version for a new file."""
    return 3 if release(containerd_version) >= _VERSION_3_SINCE else 2


class After(NamedTuple):
    """The default runtime of containerd, and the names of its runtimes."""

    default: str | None
    runtimes: tuple[str, ...]
    when: str = ""


def now(engine: Containerd) -> After:
    return After(engine["default_runtime"], _with_built_in(engine, engine["runtimes"]))


def _with_built_in(engine: Containerd, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of runtimes, with the built-in one.

    A file adds to it, and up to 1.7, its list replaces it.
    """
    is_there = merges(engine["version"] or "") or not names
    return tuple(dict.fromkeys((*names, *([_RUNC] if is_there else []))))


def after_edit(engine: Containerd, default: Default) -> After:
    """Return what the edit leaves: with NVIDIA's runtime, and runc if that is needed."""
    added = [runtime.NAME, *([_RUNC] if lacks_default(engine) else [])]
    return After(default.name or engine["default_runtime"], (*now(engine).runtimes, *added))


def after_removal(node: Node) -> After:
    """Return what is left without the keys that this role has added."""
    engine, former = node["engines"]["containerd"], changes(node, runtime.ROLE, ".toml")
    ours = {
        key[key.index("runtimes") + 1]
        for key, before in former.items()
        if key[-1] == "runtime_type" and before is None
    }
    left = _with_built_in(engine, [name for name in engine["runtimes"] if name not in ours])
    names = [before for key, before in former.items() if key[-1] == "default_runtime_name"]
    default = runtime.text(names[0]) or _RUNC if names else engine["default_runtime"]
    return After(default, left, when="without what this role has written, ")


def reads_cdi(containerd_version: str) -> bool:
    return release(containerd_version) >= release(CDI_SINCE)


def merges(containerd_version: str) -> bool:
    """Whether an imported file adds to a plugin's settings instead of replacing them."""
    return release(containerd_version) >= _MERGES_SINCE


def target(path: str, imports: Sequence[str], containerd_version: str) -> str:
    """Return the file to write: a separate drop-in if that is safe, else the main file."""
    if merges(containerd_version):
        for pattern in imports:
            place = PurePosixPath(containerd.absolute(path, pattern))
            if place.name == "*.toml" and "*" not in str(place.parent):
                return str(place.with_name(DROP_IN))
    return path


def read_later(config: ContainerdConfig, path: str, files: Iterable[str]) -> list[str]:
    """Return which of these imported files containerd reads after `path`. The last one counts.

    `path` is the main file, which is read first, or an imported one.
    """
    others = [name for name in files if name != path]
    if path == config["path"]:
        return others
    patterns = [containerd.absolute(config["path"], one) for one in config["imports"]]
    return [name for name in others if _place(patterns, name) > _place(patterns, path)]


def _place(patterns: list[str], name: str) -> tuple[int, str]:
    """Return the place of an imported file: by import, then by name; after them, their imports.

    Source: tests/recorded/containerd.yml, import_order
    """
    matching = (
        number
        for number, pattern in enumerate(patterns)
        if fnmatchcase(name, pattern) and name.count("/") == pattern.count("/")
    )
    return next(matching, len(patterns)), name


def runtime_keys(
    plugin_table: str,
    *,
    systemd_cgroup: bool,
    default: str | None,
    enable_cdi: bool,
    keep_runc: Runtime | None,
    base_runtime_spec: str = "",
) -> dict[str, object]:
    """Return the keys that register the NVIDIA runtime, in this table of the CRI runtime.

    `base_runtime_spec` is that of runc, so that pods with both runtimes have the same limits.
    `enable_cdi` writes the switch; it is needless if CDI is on already. `keep_runc` also writes
    this runtime runc.
    """
    spec = {"base_runtime_spec": base_runtime_spec} if base_runtime_spec else {}
    runtimes: dict[str, object] = {
        runtime.NAME: {
            "runtime_type": RUNTIME_TYPE,
            **spec,
            # All handlers that use runc must have the same cgroup manager as the kubelet.
            "options": {"BinaryName": runtime.PROGRAM, "SystemdCgroup": systemd_cgroup},
        }
    }
    if keep_runc:
        runtimes[_RUNC] = {
            "runtime_type": keep_runc["type"] or RUNTIME_TYPE,
            "options": {"SystemdCgroup": keep_runc["systemd_cgroup"]},
        }
    in_plugin: dict[str, object] = {"runtimes": runtimes}
    if default:
        in_plugin["default_runtime_name"] = default
    plugin: dict[str, object] = {"containerd": in_plugin}
    if enable_cdi:
        plugin["enable_cdi"] = True
    return {"plugins": {plugin_table: plugin}}


class Default(NamedTuple):
    """What becomes of the default runtime."""

    name: str | None = None  # what the configuration must name; None: nothing
    is_ours: bool = False  # this role has set it
    remove: Sequence[list[str]] = ()  # the keys that go
    former: str | None = None  # the admin's, if this role has set it


def default(node: Node, desired: runtime.Desired) -> Default:
    """Return the default runtime to write: one that this role set gets its former value back."""
    former = {
        key: before
        for key, before in changes(node, runtime.ROLE, ".toml").items()
        if key[-1] == "default_runtime_name"
    }
    name = runtime.text(next(iter(former.values()), None))
    if desired["default"]:
        return Default(runtime.NAME, is_ours=bool(former), former=name)
    gone = [list(key) for key, before in former.items() if before is None]
    return Default(name, is_ours=bool(former), remove=gone, former=name)


def differences(
    engine: Containerd, desired: runtime.Desired, *, is_default_ours: bool
) -> list[str]:
    """Return which settings beside the runtime itself are not as desired."""
    found = []
    is_default = engine["default_runtime"] == runtime.NAME
    if is_default != bool(desired["default"]) and (desired["default"] or is_default_ours):
        found.append(f"its default runtime is {engine['default_runtime']}")
    if desired["cdi"] and not engine["cdi_enabled"]:
        found.append("CDI is off")
    return found


def model(engine: Containerd, default: Default) -> str:
    """Return the name of the runtime that NVIDIA's must equal: that of pods without RuntimeClass.

    That one has the cgroup manager of the kubelet. If an admin has made nvidia the default, it is
    its own model: containerd 2 then reports a runc that no file mentions, with built-in values. A
    default of another type, such as gVisor or Kata, has no such options, so runc is the model.
    """
    name = engine["default_runtime"] or _RUNC
    if name == runtime.NAME and default.is_ours:
        name = default.former or _RUNC
    found = engine["runtimes"].get(name)
    return name if found is None or is_runc(found) else _RUNC


def is_runc(found: Runtime) -> bool:
    """Return whether a runtime has the options of runc."""
    return found["type"].startswith(_RUNC_TYPES)


def cgroup_driver(node: Node, version: str) -> str | None:
    """Return the kubelet's own cgroup driver; None if it takes that of this containerd.

    Source: tests/recorded/containerd.yml, cgroup_driver
    """
    kubelet = node["kubelet"]["version"]
    asks = release(kubelet or "") >= ASKS_CRI_SINCE and release(version) >= _TELLS_SINCE
    is_known = kubelet is not None and node["engines"]["containerd"]["home"] is None
    return node["cgroup"]["driver"] if is_known and not asks else None


def wants_systemd(engine: Containerd, default: Default, driver: str | None) -> bool:
    """Return SystemdCgroup of the NVIDIA runtime: as the kubelet has it, else as its model."""
    like = engine["runtimes"].get(model(engine, default))
    return driver == "systemd" if driver else like is not None and like["systemd_cgroup"]


def lacks_default(engine: Containerd) -> bool:
    """Return whether the list of runtimes lacks runc, although it is the default runtime.

    nvidia-ctk leaves such a file on a node that had none. The edit can add runc, and no other.
    """
    return engine["default_runtime"] == _RUNC and _RUNC not in now(engine).runtimes


def edit(
    engine: Containerd,
    version: str,
    *,
    cdi: bool,
    default: Default = Default(),  # noqa: B008 - immutable
    driver: str | None = None,
) -> Edit:
    """Return the file to edit (path) and the keys to merge into it (merge).

    `cdi` turns CDI on if it is off. `engine` is `engines.containerd` of an observation. The NVIDIA
    runtime gets the defaults of its model, and the cgroup driver: `driver` is the kubelet's own.
    """
    config = engine["config"]
    like = engine["runtimes"].get(model(engine, default))
    systemd_cgroup = wants_systemd(engine, default, driver)
    kept = None if merges(version) else engine["runtimes"].get(_RUNC)
    if lacks_default(engine):
        kept = Runtime(type="", binary="", base_runtime_spec="", systemd_cgroup=systemd_cgroup)
    config_version = config["version"] if config["exists"] else new_config_version(version)
    path = config["path"] or CONFIG
    if config["exists"]:
        path = target(path, config["imports"], version)
    keys = runtime_keys(
        cri_plugin(config_version, version, config["cri_tables"]),
        systemd_cgroup=systemd_cgroup,
        default=default.name,
        enable_cdi=cdi and reads_cdi(version) and not engine["cdi_enabled"],
        keep_runc=kept,
        base_runtime_spec=like["base_runtime_spec"] if like else "",
    )
    # Only our own file needs a version. An existing file has one, or is version 1.
    own = not config["exists"] or path != config["path"]
    if own and config_version is not None:
        keys = {"version": config_version, **keys}
    merge = containerd.as_written(keys, config["outline"], version)
    return {"path": path, "merge": merge, "remove": [*default.remove]}
