# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about the NVIDIA Container Toolkit and the CDI specifications."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.mappings import section, text, texts
from ansible_collections.metal.gpu.plugins.module_utils.observed.containers import (
    Cdi,
    Toolkit,
    ToolkitPart,
)
from ansible_collections.metal.gpu.plugins.module_utils.read import cdi, nvidia_driver
from ansible_collections.metal.gpu.plugins.module_utils.read.systemd import parse_environment_file
from ansible_collections.metal.gpu.plugins.module_utils.read.version import (
    parse_version,
    upstream_version,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import history as document_history
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.load import (
    Document,
    load_toml,
    load_yaml,
)

# What the generator takes for true, in the environment.
_TRUE = ("1", "t", "true")
_EMPTY_LINES = re.compile(r"\n{3,}")


def observe(raw: Raw) -> ToolkitPart:
    return {"toolkit": _toolkit(raw), "cdi": _cdi(raw)}


def _toolkit(raw: Raw) -> Toolkit:
    versions = raw.versions(nvidia_driver.is_toolkit_package)
    text = raw.texts.get(nvidia_driver.TOOLKIT_CONFIG)
    document = None if text is None else load_toml(nvidia_driver.TOOLKIT_CONFIG, text)
    # A program that was built without a version prints "unknown".
    packaged = versions.get("nvidia-container-toolkit-base") or versions.get(
        "nvidia-container-toolkit"
    )
    return {
        "packages": versions,
        "version": parse_version(raw.stdout("toolkit"))
        or (upstream_version(packaged) if packaged else None),
        "programs": raw.program_files(nvidia_driver.TOOLKIT_PROGRAMS),
        "cdi_skipped": raw.units.get(nvidia_driver.CDI_UNIT, {}).get("Result") == "exec-condition",
        **_cdi_service(raw),
        "config": next(iter(raw.found["toolkit_config"]), None),
        "config_sha256": _sha256(_config_without_edits(raw)),
        "runtimes": _runtimes(document),
        "mode": _mode(document),
        "config_error": document and (document.error or document.obstacle),
        "settings": {
            name: value
            for name, value in (document.content if document else {}).items()
            if isinstance(value, bool)
        },
        "annotation_prefixes": _annotation_prefixes(document),
        "swarm_resource": _swarm_resource(document),
        "char_dev_rules": [
            path for path in raw.find("*/udev/rules.d/*.rules") if _has_link_rule(raw.texts[path])
        ],
    }


class _Service(TypedDict):
    cdi_devices: list[str] | None
    cdi_has_all: bool


def _cdi_service(raw: Raw) -> _Service:
    """Return what the admin has set for the service that writes the specification."""
    options = parse_environment_file(raw.texts.get(nvidia_driver.CDI_OPTIONS, ""))
    names = options.get("NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS", "").split(",")
    devices = [name.strip() for name in names if name.strip()]
    # As the generator does: a device that is no device has no device with everything either.
    omits = options.get("NVIDIA_CTK_CDI_GENERATE_NO_ALL_DEVICE", "").lower() in _TRUE
    return {
        "cdi_devices": None if not devices or "all" in devices else devices,
        "cdi_has_all": not omits and "none" not in devices,
    }


def _runtimes(document: Document | None) -> list[str] | None:
    if document is None:
        return None
    return texts(document.content, "nvidia-container-runtime", "runtimes") or None


def _mode(document: Document | None) -> str | None:
    return text(document.content if document else {}, "nvidia-container-runtime", "mode")


def _annotation_prefixes(document: Document | None) -> list[str] | None:
    modes = section(document.content if document else {}, "nvidia-container-runtime", "modes")
    found = section(modes, "cdi").get("annotation-prefixes")
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else None


def _swarm_resource(document: Document | None) -> list[str]:
    names = text(document.content if document else {}, "swarm-resource") or ""
    return [name.strip() for name in names.split(",") if name.strip()]


def _config_without_edits(raw: Raw) -> str | None:
    """Return the configuration file as a removal of this collection's edits leaves it.

    There can be several of them, one after the other. Where the first one was taken back and made
    again, the second one's history has a file that is no more, and only values can be restored.
    What somebody else has edited stays. If nobody can tell, this is the file as it is.
    """
    path = nvidia_driver.TOOLKIT_CONFIG
    content = raw.texts.get(path)
    left = [raw.texts[history] for history, one in raw.histories.items() if one.path == path]
    while left:
        originals = {text: document_history.original(text, content) for text in left}
        last = next((text for text, original in originals.items() if original is not None), None)
        if last is None:
            last = left[0]
            rest = document_history.without(last, content, "toml")
            # Where values were restored one by one, an empty line more can be left.
            originals[last] = rest and _EMPTY_LINES.sub("\n\n", rest)
        if originals[last] is None:
            return content
        content = originals[last]
        left.remove(last)
    return content


def _sha256(text: str | None) -> str | None:
    return None if text is None else sha256(text.encode(errors="replace")).hexdigest()


def _has_link_rule(text: str) -> bool:
    return any(
        nvidia_driver.LINK_COMMAND in line and not line.lstrip().startswith("#")
        for line in text.splitlines()
    )


def _cdi(raw: Raw) -> Cdi:
    patterns = [f"{directory}/*" for directory in cdi.DIRECTORIES]
    files = raw.find(*patterns)
    # YAML is a superset of JSON as far as these files go.
    documents = {path: load_yaml(path, raw.texts[path]) for path in files}
    names = {path: cdi.parse_devices(document.content) for path, document in documents.items()}
    devices = [name for found in names.values() for name in found]
    drivers = {path: cdi.parse_drivers(one.content) for path, one in documents.items()}
    parts = {path: cdi.parse_parts(one.content) for path, one in documents.items()}
    numbers = {path: cdi.parse_majors(one.content) for path, one in documents.items()}
    errors = {path: document.error for path, document in documents.items()}
    errors |= {path: raw.read_error(path) for path in raw.unread(*patterns)}
    return {
        "spec_files": files,
        "kinds": {path: cdi.parse_kind(document.content) for path, document in documents.items()},
        "errors": {path: error for path, error in errors.items() if error},
        "devices": list(dict.fromkeys(devices)),
        "names": {path: found for path, found in names.items() if found},
        "drivers": {path: found for path, found in drivers.items() if found},
        "parts": {path: found for path, found in parts.items() if found},
        "majors": {path: majors for path, majors in numbers.items() if majors},
    }
