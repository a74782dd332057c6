# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn the raw data of a node into the observation `gpu_node`.

Each component interprets its part. The controller does it, because only the controller has parsers
for TOML and YAML. The libraries in module_utils also run on the node, so they take loaded
documents.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TypedDict, cast

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.probe.raw_data import RawData
from ansible_collections.metal.gpu.plugins.module_utils.probe.registry import PROBES
from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact, redact_all
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw

_PLACES = 2  # of the innermost calls
# Addresses of repositories are compared, and `repositories` has sealed their credentials.
_SEALED = ("repositories",)


class Failure(TypedDict):
    """A component that could not be observed, because its code has a defect."""

    component: str
    error: str  # without credentials
    place: str  # files and lines of the code, the innermost last


class ObservationFailed(Exception):
    """Components were not observed, because their code has a defect."""

    def __init__(self, failures: list[Failure], rest: Mapping[str, object]) -> None:
        super().__init__("; ".join(map(_describe, failures)))
        self.failures = failures
        self.rest = rest  # what the other components observed


def _describe(failure: Failure) -> str:
    return f"component {failure['component']}: {failure['error']}, at {failure['place']}"


def interpret(data: RawData) -> Node:
    """Return `gpu_node`, as the documentation of metal.gpu.node_info describes it.

    Raises ObservationFailed, so that no planner gets an incomplete observation.
    """
    raw = Raw(data)
    observed: dict[str, object] = {}
    failures: list[Failure] = []
    for component in PROBES:
        try:
            part = _observer(component)(raw)
        except Exception as error:
            failures.append(_failure(component, error))
            continue
        for key, value in part.items():
            others = observed.get(key)
            if isinstance(others, dict) and isinstance(value, dict):
                observed[key] = {**others, **value}  # each engine adds itself to the engines
            else:
                observed[key] = value
    node = {key: value if key in _SEALED else redact_all(value) for key, value in observed.items()}
    if failures:
        raise ObservationFailed(failures, node)
    return cast(Node, node)


def _observer(component: str) -> Callable[[Raw], Mapping[str, object]]:
    module = import_module(f"..{component}.observed", __name__)
    return cast(Callable[[Raw], Mapping[str, object]], module.observe)


def _failure(component: str, error: Exception) -> Failure:
    frames = traceback.extract_tb(error.__traceback__)[1:]
    places = [
        f"{path.rpartition('/metal/gpu/')[2]}:{frame.lineno} in {frame.name}"
        for frame in frames
        if "/metal/gpu/" in (path := frame.filename)
    ]
    return {
        "component": component,
        "error": redact(f"{type(error).__name__}: {error}"),
        "place": ", ".join(places[-_PLACES:]),
    }
