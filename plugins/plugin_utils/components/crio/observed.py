# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about CRI-O."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.metal.gpu.plugins.module_utils.mappings import text
from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import (
    Crio,
    CrioConfig,
    CrioPart,
    Hook,
)
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    crio,
    document_history_files,
    systemd,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.load import (
    Document,
    load_json,
    load_toml,
)

_STATUS = "crio status config"


def observe(raw: Raw) -> CrioPart:
    return {"engines": {"crio": _crio(raw)}}


def _crio(raw: Raw) -> Crio:
    paths = crio.reading_order(set(raw.find(*crio.CONFIG_PATTERNS)))
    files = {path: load_toml(path, raw.texts[path]) for path in paths}
    answer = raw.outputs.get("crio_config")
    if answer and answer.rc == 0:
        documents = {_STATUS: load_toml(_STATUS, answer.stdout)}
    else:
        documents = {file: document for file, document in files.items() if not document.error}
    effective = crio.parse_effective(document.content for document in documents.values())
    read = [*crio.CONFIG_PATTERNS, *(f"{one}/*" for one in effective.hooks_dirs)]
    return {
        **raw.program(crio.UNIT, "crio", "crio"),
        "config": _config(raw, files, list(documents)),
        "changed_since_start": raw.changed_since_start(crio.UNIT, read),
        "edited_since_start": raw.edited(
            raw.changed_since_start(crio.UNIT, [document_history_files.PATTERN]), read
        ),
        "monitor_in_path": raw.programs["conmon"] is not None,
        "monitor": effective.monitor,
        "default_runtime": effective.default_runtime,
        "runtimes": effective.runtimes,
        "cdi_dirs": effective.cdi_dirs,
        "hooks_dirs": effective.hooks_dirs,
        "hooks": _hooks(raw, effective.hooks_dirs),
        "auth_file": effective.auth_file,
        "openshift": _openshift(raw),
    }


def _openshift(raw: Raw) -> str | None:
    """Return what shows that OpenShift's operators own the configuration of CRI-O."""
    release = systemd.parse_environment_file(raw.texts.get("/etc/os-release", ""))
    if release.get("VARIANT_ID") == "coreos":
        return "/etc/os-release has VARIANT_ID=coreos"
    package = raw.packages.get("cri-o")
    is_built_for_it = package is not None and ".rhaos" in package.version
    return f"the package cri-o is {package.version}" if package and is_built_for_it else None


def _config(raw: Raw, files: Mapping[str, Document], source: list[str]) -> CrioConfig:
    errors = [raw.read_error(file) for file in raw.unread(*crio.CONFIG_PATTERNS)]
    errors += [document.error for document in files.values() if document.error]
    runtime_files: dict[str, list[str]] = {}
    without_monitor: dict[str, list[str]] = {}
    for path, document in files.items():
        for name, runtime in crio.parse_effective([document.content]).runtimes.items():
            runtime_files.setdefault(name, []).append(path)
            if (runtime["type"] or "") in crio.OCI and not runtime["monitor"]:
                without_monitor.setdefault(name, []).append(path)
    return {
        "path": crio.CONFIG,
        "exists": raw.file_exists(crio.CONFIG),
        "files": list(files),
        "runtime_files": runtime_files,
        "without_monitor": without_monitor,
        "monitor": crio.parse_effective(one.content for one in files.values()).monitor,
        "defaults": {
            path: default
            for path, document in files.items()
            if (default := crio.parse_effective([document.content]).default_runtime)
        },
        "error": errors[0] if errors else None,
        "obstacles": {path: one.obstacle for path, one in files.items() if one.obstacle},
        "source": ", ".join(source) or None,
    }


def _hooks(raw: Raw, folders: list[str]) -> list[Hook]:
    """Return NVIDIA's hooks in the folders from which CRI-O reads hooks."""
    found: list[Hook] = []
    for path in raw.find(*(f"{folder.rstrip('/')}/*.json" for folder in folders)):
        document = load_json(path, raw.texts[path])
        program = crio.parse_hook(document.content)
        if program:
            when = document.content.get("when")
            always = when.get("always") if isinstance(when, Mapping) else None
            is_known = text(document.content, "version") == "1.0.0"
            unknown = None if is_known else f'{path}: its "version" is not 1.0.0'
            found.append(
                {
                    "path": path,
                    "program": program,
                    "always": always if isinstance(always, bool) else None,
                    "error": document.obstacle or unknown,
                }
            )
    return found
