# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about containerd."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils import mappings
from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import (
    Containerd,
    ContainerdPart,
)
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    containerd,
    document_history_files,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import value_of
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import home as homes
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.edit import BYTE_ORDER_MARK
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.load import (
    Document,
    load_toml,
    outline,
)

# containerd 2 (go-toml 2) reads the first byte of the mark as a key. containerd 1 skips the mark.
# Source: LoadConfig of containerd v2.1.4 and `containerd config dump` of 1.6.20, run.
_MARK_AS_READ = "invalid character at start of key: \u00ef"
_MARK_REFUSED = (
    "{path}, line 1, column 1: the file starts with a byte order mark, which this containerd "
    r"rejects. Remove it: sed -i '1s/^\xEF\xBB\xBF//' {path}"
)


RUNTIME = "nvidia"  # the handler that RuntimeClasses name


class _Answer(NamedTuple):
    """What containerd says of its configuration, and what is wrong with the file."""

    effective: containerd.Effective | None
    source: str | None
    error: str | None
    obstacle: str | None


def observe(raw: Raw) -> ContainerdPart:
    return {"engines": {"containerd": _containerd(raw)}}


def _containerd(raw: Raw) -> Containerd:
    data = homes.data_of(raw)
    named = value_of(raw.in_force(containerd.UNIT), *containerd.CONFIG_FLAGS)
    if data:
        named = data["config"]
    path = named or containerd.DEFAULT_CONFIG
    program = homes.program(raw)
    version = program["version"] or ""
    document = load_toml(path, raw.texts.get(path, ""))
    own = document._replace(content=containerd.as_read(document.content, version))
    imported = _imported(raw, path, version)
    # The module runs the same command.
    command = "dump" if named or raw.file_exists(path) is not False else "default"
    if command == "dump" and containerd.needs_migration(version):
        command = "migrate"
    answer = _ask(raw, path, own, program["version"], f"containerd config {command}")
    effective = answer.effective
    return {
        **program,
        "home": homes.observe(raw),
        "socket": data["socket"] if data else effective.socket if effective else None,
        "runc": raw.program_files(["runc"])["runc"],
        "config": {
            "path": path,
            "exists": raw.file_exists(path),
            "version": mappings.number(own.content, "version"),
            "imports": mappings.texts(own.content, "imports"),
            "cri_tables": containerd.cri_tables(own.content),
            "imported_cri": [name for name, one in imported.items() if containerd.cri_tables(one)],
            "imported_nvidia": [
                name for name, one in imported.items() if containerd.sets_runtime(one, RUNTIME)
            ],
            "imported_folders": {
                name: folders
                for name, one in imported.items()
                if (folders := containerd.registry_folders(one)) is not None
            },
            "missing_imports": [
                f"{name} in {importer}"
                for importer, one in {path: own.content, **imported}.items()
                for name in (
                    containerd.absolute(importer, found) for found in mappings.texts(one, "imports")
                )
                if name.endswith(".toml") and "*" not in name and raw.file_exists(name) is False
            ],
            "outline": outline(document.content),
            "error": answer.error,
            "obstacle": answer.obstacle,
            "source": answer.source,
        },
        "needs_reload": raw.needs_reload(homes.unit(raw)),
        "changed_since_start": homes.changed_since_start(raw, [path, *imported]),
        "edited_since_start": raw.edited(
            homes.changed_since_start(raw, [document_history_files.PATTERN]), [path, *imported]
        ),
        "cri_enabled": effective.cri_enabled if effective else None,
        "cdi_enabled": effective.cdi_enabled if effective else None,
        "default_runtime": effective.default_runtime if effective else None,
        "runtimes": effective.runtimes if effective else {},
        "registry": effective.registry if effective else containerd.NO_REGISTRY,
        "conflicts": [*effective.conflicts] if effective else [],
        "missing_specs": [
            f"{one['base_runtime_spec']} of the runtime {name}"
            for name, one in (effective.runtimes if effective else {}).items()
            if one["base_runtime_spec"] in homes.missing_specs(raw)
        ],
    }


def _imported(raw: Raw, path: str, version: str) -> dict[str, Mapping[str, object]]:
    """Return the content of each file that a file imports, also through other files."""
    found: dict[str, Mapping[str, object]] = {}
    left = [path]
    while left:
        importer = left.pop()
        patterns = containerd.mentioned_files(importer, raw.texts.get(importer, ""))
        for name in raw.imported(*patterns):
            if name != path and name not in found:
                content = load_toml(name, raw.texts[name]).content
                found[name] = containerd.as_read(content, version)
                left.append(name)
    return dict(sorted(found.items()))


def _ask(raw: Raw, path: str, own: Document, version: str | None, command: str) -> _Answer:
    dump = raw.outputs.get("containerd_dump")
    unreadable = raw.read_error(path)
    if dump and dump.rc == 0 and version:
        merged = load_toml(command, dump.stdout)
        effective = containerd.parse_effective(merged.content, version)
        # A file that containerd accepts is valid, even if it is not strict TOML.
        error = unreadable or _too_new(path, own, version)
        return _Answer(effective, command, error, own.error or own.obstacle)
    error = unreadable or own.error
    if dump and not error:
        error = containerd.parse_refusal(dump.stderr)
        if raw.texts.get(path, "").startswith(BYTE_ORDER_MARK) and _MARK_AS_READ in dump.stderr:
            error = _MARK_REFUSED.format(path=path)
    return _Answer(None, None, error, own.obstacle)


def _too_new(path: str, own: Document, version: str) -> str | None:
    """Return why containerd ignores settings of a file that it accepts, as 1.6 does."""
    found = mappings.number(own.content, "version")
    if found is None or found <= containerd.newest_config_version(version):
        return None
    return f"{path} has version {found}, whose settings containerd {version} ignores"
