# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plugin's configuration, environment and affinity: are they usable, and what do they say?

The plugin ignores keys that it does not know, without a word, and one of its pods per node crashes
with a value that it does not accept. No function does I/O.

Source: tests/recorded/device_plugin.yml
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import yaml

from ansible_collections.metal.gpu.plugins.module_utils.mappings import section
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.shapes import (
    Desired,
    Values,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plain_types import plain

CONFIG, ENV, AFFINITY, ARGS = (
    f"device_plugin_{name}" for name in ("config", "env", "affinity", "args")
)
STRATEGY = "DEVICE_LIST_STRATEGY"  # variables of the plugin's environment
MIG = "MIG_STRATEGY"
CONFIG_OPTION, MIG_OPTION = "--config-file", "--mig-strategy"

_VERSION = "v1"
_KEYS = ("version", "flags", "sharing", "imex")
_IGNORED = ("resources",)
_SHARING = ("timeSlicing",)
_SLICING = ("renameByDefault", "failRequestsGreaterThanOne")
_RESOURCE = ("name", "replicas")
_MIG = ("none", "single", "mixed")
_AFFINITY = ("nodeAffinity", "podAffinity", "podAntiAffinity")
# Variables of the environment that other variables of the role set.
_OWNED = {
    STRATEGY: "device_plugin_device_list_strategy",
    "CONFIG_FILE": CONFIG,
}
_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


class Problem(NamedTuple):
    """Why a variable is not usable."""

    name: str
    error: str


def problems(desired: Desired) -> Iterator[Problem]:
    """Yield everything that is wrong with the variables."""
    if desired["config"]:
        yield from (Problem(CONFIG, error) for error in _config(desired["config"]))
        if _option(desired["args"], CONFIG_OPTION):
            yield Problem(ARGS, f"has {CONFIG_OPTION}, which {CONFIG} sets")
    yield from (Problem(ENV, error) for error in _env(desired["env"]))
    for name in _unknown(desired["affinity"], _AFFINITY):
        yield Problem(AFFINITY, f"has the key {name}, expected {_either(_AFFINITY)}")


def _config(config: Values) -> Iterator[str]:
    version = config.get("version", _VERSION)
    if version != _VERSION:
        yield f"has the version {version}, expected {_VERSION}"
    for name in _unknown(config, _KEYS):
        known = "ignores" if name in _IGNORED else "does not know"
        yield f"has the key {name}, which the device plugin {known}"
    for name in ("flags", "sharing", "imex"):
        if not isinstance(config.get(name, {}), Mapping):
            yield f"has no dictionary in {name}"
    flags = section(config, "flags")
    if "deviceListStrategy" in section(flags, "plugin"):
        yield f"has flags.plugin.deviceListStrategy, which {_OWNED[STRATEGY]} overrides"
    if flags.get("migStrategy", _MIG[0]) not in _MIG:
        yield f"has {flags['migStrategy']} in flags.migStrategy, expected {_either(_MIG)}"
    yield from _sharing(section(config, "sharing"))


def _sharing(sharing: Values) -> Iterator[str]:
    for name in _unknown(sharing, _SHARING):
        if name == "mps":
            yield "has sharing.mps, whose control daemon this role does not run"
        else:
            yield f"has the key sharing.{name}, which the device plugin does not know"
    if "timeSlicing" not in sharing:
        return
    slicing = section(sharing, "timeSlicing")
    for name in _unknown(slicing, (*_SLICING, "resources")):
        yield f"has the key sharing.timeSlicing.{name}, which the device plugin does not know"
    for name in _SLICING:
        if not isinstance(slicing.get(name, False), bool):
            yield f"has {slicing[name]!r} in sharing.timeSlicing.{name}, expected true or false"
    resources = slicing.get("resources")
    if not isinstance(resources, list) or not resources:
        yield "has no list of resources in sharing.timeSlicing.resources"
        return
    for number, one in enumerate(resources):
        where = f"sharing.timeSlicing.resources[{number}]"
        entry = section(one)
        for name in _unknown(entry, _RESOURCE):
            yield f"has the key {where}.{name}, which the device plugin ignores"
        if not isinstance(entry.get("name"), str):
            yield f"has no name in {where}, expected one such as nvidia.com/gpu"
        replicas = entry.get("replicas")
        if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 1:
            yield f"has {replicas!r} in {where}.replicas, expected a whole number from 1 on"


def _env(env: Values) -> Iterator[str]:
    for name, value in env.items():
        if name in _OWNED:
            yield f"has {name}, which {_OWNED[name]} sets"
        elif not _NAME.fullmatch(str(name)):
            yield f"has {name!r}, which is no name of a variable"
        elif not isinstance(value, (str, int, float)):
            yield f"has {value!r} in {name}, expected a text"


def text_of(config: Values) -> str:
    """Return the text of the configuration file."""
    whole = plain({"version": _VERSION, **config})
    return yaml.safe_dump(whole, sort_keys=False, default_flow_style=False)


def texts_of(env: Values) -> dict[str, str]:
    """Return the variables of the environment. The plugin reads true and false as YAML does."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in env.items()
    }


def has_mig(desired: Desired) -> bool:
    """Tell whether the plugin splits GPUs: arguments go before environment and configuration."""
    chosen = (
        _option(desired["args"], MIG_OPTION)
        or texts_of(desired["env"]).get(MIG)
        or section(desired["config"], "flags").get("migStrategy")
    )
    return bool(chosen) and chosen != _MIG[0]


def _option(args: Sequence[str], option: str) -> str:
    """Return the last value of an option, as one word or as two; empty without it."""
    words = " ".join(args).replace(f"{option} ", f"{option}=").split()
    return next((word.partition("=")[2] for word in reversed(words) if _is(word, option)), "")


def _is(word: str, option: str) -> bool:
    return word.startswith(f"{option}=")


def _unknown(found: Values, known: Iterable[str]) -> list[str]:
    return [name for name in found if name not in known]


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
