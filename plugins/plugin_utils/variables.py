# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the variables that users set.

The argument specifications of the roles declare the variables. Ansible also checks them, but role
by role in the middle of a run, and prints every argument of the role if one is wrong. So the roles
preflight and verify check all of them first.

Functions with names that start with `load_` read the files of the collection. No other function
does I/O.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ansible_collections.metal.gpu.plugins.module_utils.booleans import BOOLEANS
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_output import LIST
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read import image_needs
from ansible_collections.metal.gpu.plugins.module_utils.readable import some
from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact
from ansible_collections.metal.gpu.plugins.plugin_utils.components import COMPONENTS

_COLLECTION = Path(__file__).parents[2]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Keywords of plays read these. Ansible evaluates keywords before it loads any host's variables, so
# values of the inventory have no effect.
PLAY_VARIABLES = ("metal_gpu_hosts", "metal_gpu_serial")
# The roles of metal.gpu.site.
OF_SITE = (*(one.role for one in COMPONENTS if one.is_for_site), "verify")

# A variable with one of these prefixes is meant for this collection. A variable with `gpu_` or the
# name of another of our roles as its prefix may belong to another tool.
_OURS = ("metal_gpu_", *(f"{one.role}_" for one in COMPONENTS if one.has_own_prefix))
_NEAR = 0.75  # `cuont` and `count` are 0.8
_LONG = 5  # characters: `cri` is no misspelled `crio`
_NAMED = 3  # hosts
_SHOWN = 60  # characters of a value
_WHOLE = re.compile(r"[0-9]{1,9}")
_WORD = re.compile(r"\w+")


class Option(NamedTuple):
    """The specification of a variable."""

    roles: tuple[str, ...]
    type: str
    elements: str
    choices: tuple[str, ...]
    has_default: bool
    default: Any


@functools.cache
def load_options() -> dict[str, Option]:
    """Return the variables of all roles by name."""
    options: dict[str, Option] = {}
    for path in sorted(_COLLECTION.glob("roles/*/meta/argument_specs.yml")):
        role = path.parents[1].name
        specification = yaml.load(path.read_text("utf-8"), _LOADER)["argument_specs"]
        for entry_point in specification.values():
            for name, option in entry_point["options"].items():
                options[name] = Option(
                    (*options[name].roles, role) if name in options else (role,),
                    option["type"],
                    option.get("elements", "str"),
                    tuple(option.get("choices", ())),
                    "default" in option,
                    option.get("default"),
                )
    return options


@functools.cache
def load_defaults() -> Mapping[str, Any]:
    """Return the defaults of all roles by name; some are templates."""
    defaults: dict[str, Any] = {}
    for path in sorted(_COLLECTION.glob("roles/*/defaults/main.yml")):
        defaults |= yaml.load(path.read_text("utf-8"), _LOADER)
    return defaults


@functools.cache
def load_words() -> frozenset[str]:
    """Return every word in the tasks of this collection, which includes the facts they set."""
    patterns = ("playbooks/*.yml", "roles/*/tasks/**/*.yml", "roles/*/vars/*.yml")
    paths = (path for pattern in patterns for path in _COLLECTION.glob(pattern))
    return frozenset(word for path in paths for word in _WORD.findall(path.read_text("utf-8")))


def whole_number(value: Any) -> int | None:
    """Return the number, or None for anything else, such as True and 4.0."""
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else None
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and value >= 0 else None


def gpu_count(host: str, value: Any) -> tuple[int | None, list[dict[str, str]]]:
    """Return the declared number of GPUs of a host, and the refusals of the value.

    None declares nothing, and so does the empty text that ansible-core before 2.19 makes of it.
    """
    number = whole_number(value)
    if number is not None or value in (None, ""):
        return number, []
    return None, [_invalid(host, "gpu_count", value, _FORMS["int"].words)]


def gpu_expected(value: Any) -> dict[str, int] | None:
    """Return what the variable gpu_expected says, by resource; None if it is not valid."""
    if value in (None, ""):
        return {}
    if not isinstance(value, Mapping):
        return None
    amounts = {str(name): whole_number(amount) for name, amount in value.items()}
    found = {name: amount for name, amount in amounts.items() if amount is not None}
    return found if len(found) == len(amounts) and all("/" in name for name in found) else None


def refuse_invalid(
    host: str, variables: Mapping[str, Any], roles: Collection[str]
) -> dict[str, dict[str, str]]:
    """Return a refusal for each variable of these roles with an invalid value, by name."""
    refusals = {}
    for name, option in load_options().items():
        if name in variables and not set(option.roles).isdisjoint(roles):
            try:
                value = variables[name]
                expected = _expected(name, value, option)
            except (
                Exception
            ):  # a filter may raise anything; the plan that reads the value reports it
                continue
            if expected is not None:
                refusals[name] = _invalid(host, name, value, expected)
    return refusals


def refuse_misplaced(
    names: Mapping[str, Collection[str]], command_line: Collection[str]
) -> list[dict[str, str]]:
    """Return a refusal for each variable that is set, but not on the command line as it must be.

    `names` has the names of the variables of each host.
    """
    return [
        finding("VARIABLE_MISPLACED", "inventory", name=name, hosts=some(hosts, _NAMED))
        for name in PLAY_VARIABLES
        for hosts in [[host for host, variables in names.items() if name in variables]]
        if hosts and name not in command_line
    ]


def notice_unknown(names: Mapping[str, Iterable[str]]) -> list[dict[str, str]]:
    """Return a notice for each unknown variable that looks like one of ours.

    `names` has the names of the variables of each host.
    """
    used = {*load_options(), *PLAY_VARIABLES, *load_words()}
    roles = {role for option in load_options().values() for role in option.roles}
    prefixes = ("gpu_", "metal_gpu_", *(f"{role}_" for role in roles))
    hosts: dict[str, list[str]] = {}
    for host, variables in names.items():
        for name in variables:
            if name.startswith(prefixes):
                is_ours = name not in used
            else:  # a template of the one that is meant may read it
                is_ours = (far := _far(name)) is not None and far not in variables
            if is_ours:
                hosts.setdefault(name, []).append(host)
    return [
        finding(
            "VARIABLE_UNKNOWN",
            "inventory",
            name=name,
            hosts=some(hosts[name], _NAMED),
            hint=f"; did you mean {near}?" if near else "",
        )
        for name in sorted(hosts)
        for near in [_nearest(name, prefixes) if name.startswith(prefixes) else _far(name)]
        if near or name.startswith(_OURS)
    ]


def notice_unused(hosts: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return a notice if no pod runs the image that an admin may take for the one of all pods."""
    option = load_options()["verify_level"]
    levels: dict[str, list[str]] = {}
    for host, variables in hosts.items():
        if "verify_smoke_image" in variables and "verify_compute_image" not in variables:
            try:
                level = variables.get("verify_level", option.default)
            except Exception:  # as above
                continue
            if level in option.choices and level != LIST:
                levels.setdefault(level, []).append(host)
    return [
        finding("SMOKE_IMAGE_UNUSED", "inventory", hosts=some(names, _NAMED), level=level)
        for level, names in levels.items()
    ]


@functools.cache  # of each host again
def _far(name: str) -> str | None:
    """Return the variable that was probably meant by a name that starts like none of ours.

    Its words are run together, or one of them is misspelled, or those before them are left out.
    """
    words = name.split("_")
    for one, option in load_options().items():
        role, own = option.roles[0], one.split("_")
        rest = one.removeprefix(f"{role}_")
        is_tail = one.endswith(f"_{name}") and len(name) > len(rest) and rest != one
        wrong = [pair for pair in zip(words, own, strict=False) if pair[0] != pair[1]]
        is_typo = len(words) == len(own) > 1 and len(wrong) == 1
        if is_typo and (is_typo := min(map(len, wrong[0])) >= _LONG):
            is_typo = difflib.SequenceMatcher(None, *wrong[0]).ratio() >= _NEAR
        is_joined = name.replace("_", "").lower() == one.replace("_", "")
        if is_tail or is_typo or is_joined:
            return one
    return None


def _nearest(name: str, prefixes: Sequence[str]) -> str | None:
    """Return the variable that the user probably meant."""
    settable = [*load_options(), *PLAY_VARIABLES]
    prefix = max((one for one in prefixes if name.startswith(one)), key=len)
    # A common prefix is no evidence: `containerd_root` is not `containerd_state`.
    rests = [one.removeprefix(prefix) for one in settable if one.startswith(prefix)]
    rest = difflib.get_close_matches(name.removeprefix(prefix), rests, 1, _NEAR)
    return prefix + rest[0] if rest else None


def _invalid(host: str, name: str, value: Any, expected: str) -> dict[str, str]:
    role = load_options()[name].roles[0]
    return finding(
        "VARIABLE_INVALID", host, name=name, found=_shown(value), expected=expected, role=role
    )


def _shown(value: Any) -> str:
    """Return a value as an inventory would contain it."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        text = redact(str(value))
        text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        return f"'{text}'" if isinstance(value, str) else text
    return "a mapping" if isinstance(value, Mapping) else "a list"


def _expected(name: str, value: Any, option: Option) -> str | None:
    """Return what is expected instead of the value, or None if it is valid."""
    if name == "gpu_count":
        return _FORMS["int"].words if gpu_count("", value)[1] else None
    if name == "gpu_expected":
        words = "whole numbers by resource, such as {nvidia.com/gpu: 40}"
        return words if gpu_expected(value) is None else None
    form = _FORMS[option.type]
    if value is None:
        return form.words if option.has_default else None
    if option.choices:
        return None if value in option.choices else f"one of {', '.join(option.choices)}"
    if not form.matches(value):
        return form.words
    item = _FORMS[option.elements]
    if option.type == "list" and not all(map(item.matches, value)):
        return f"a list in which each item is {item.words}"
    texts = map(str, value if option.type == "list" else [value])
    known = _TEXTS.get(name)
    return known.words if known and not all(map(known.matches, texts)) else None


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, (list, tuple, Mapping))


def _is_true_or_false(value: Any) -> bool:
    return _is_scalar(value) and (value.lower() if isinstance(value, str) else value) in BOOLEANS


class _Form(NamedTuple):
    """What a type of an argument specification accepts."""

    matches: Callable[[Any], bool]
    words: str


_FORMS = {
    "bool": _Form(_is_true_or_false, "true or false"),
    "dict": _Form(lambda value: isinstance(value, Mapping), "a mapping"),
    "int": _Form(lambda value: whole_number(value) is not None, "a whole number, 0 or greater"),
    "list": _Form(lambda value: isinstance(value, (list, tuple)), "a list"),
    "path": _Form(lambda value: _is_scalar(value) and not _is_number(value), "a path"),
    # YAML reads the version 1.20 as the number 1.2.
    "str": _Form(lambda value: _is_scalar(value) and not _is_number(value), "text in quotes"),
}


# Variables whose texts have a form of their own.
_TEXTS = {
    "verify_docker_capabilities": _Form(
        lambda text: image_needs.CAPABILITY.fullmatch(text) is not None,
        'a list of compute capabilities, such as "7.5" or "9.0+PTX"',
    ),
    "device_plugin_image": _Form(
        # A port of the registry has a colon, too.
        lambda text: re.fullmatch(r"([^\s@/]+/)*[^\s@:/]+", text) is not None and "//" not in text,
        "the name of an image; its tag or digest goes into device_plugin_version",
    ),
    "verify_docker_image": _Form(
        lambda text: (
            re.fullmatch(r"[^\s@:][^\s@]*(@sha256:[0-9a-f]{64})?", text) is not None
            and "://" not in text
        ),
        "the name of an image; a digest is @sha256: and 64 hexadecimal digits",
    ),
}


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))
