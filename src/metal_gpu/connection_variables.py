# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Turn Ansible's variables about connections into a Host.

Source: ansible-core 2.21, the documentation of the plugins ansible.builtin.ssh and
ansible.builtin.sudo.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.metal.gpu.plugins.module_utils.booleans import boolean
from metal_gpu.hosts import Host
from metal_gpu.templates import AsItIs, NotRendered, Variables

_SSH = ("ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh", "")
_LOCAL = ("local", "ansible.builtin.local")
_SUDO = ("sudo", "ansible.builtin.sudo", "")
# Options of ssh with a value: those of ssh(1) of OpenSSH 9.2, and -P of 9.4.
_WITH_VALUE = "BbcDEeFIiJLlmOoPpQRSWw"
# Those that count here, as keywords of ssh_config(5).
_KEYWORDS = {"J": "proxyjump", "P": "tag", "p": "port", "i": "identityfile", "l": "user"}
_FILE = "-F"  # no keyword
_WAYS = ("proxyjump", "proxycommand")  # the first of both counts


class _Invalid(Exception):
    """A variable has no valid value; the message names it."""


def host(
    name: str,
    variables: Mapping[str, object],
    groups: Mapping[str, Sequence[str]] | None = None,
    hostvars: Mapping[str, Mapping[str, object]] | None = None,
) -> Host:
    """Return how to reach a host of an inventory.

    A host with a variable that only Ansible can render, or that has no valid value, has an
    obstacle, and the others go on.
    """
    magic = {"groups": AsItIs(groups or {}), "hostvars": AsItIs(hostvars or {})}
    rendered = Variables({"inventory_hostname": name, **magic, **variables})
    try:
        return _host(name, variables, rendered)
    except (NotRendered, _Invalid) as error:
        return Host(name, name, variables=variables, obstacle=str(error))


def _host(name: str, variables: Mapping[str, object], rendered: Variables) -> Host:
    options = _merged(rendered)
    return Host(
        name,
        _text(rendered, "ansible_host", "ansible_ssh_host") or name,
        port=_port(options.pop("port", "")),
        user=options.pop("user", None),
        key_file=options.pop("identityfile", None),
        jump=options.pop("proxyjump", None),
        config_file=options.pop(_FILE, None),
        become=_become(_value(rendered, "ansible_become")),
        variables=variables,
        local=_text(rendered, "ansible_connection") in _LOCAL,
        options=options,
        password=_password(
            rendered, "ansible_ssh_password", "ansible_password", "ansible_ssh_pass"
        ),
        become_password=_password(rendered, "ansible_become_password", "ansible_become_pass"),
        obstacle=_obstacle(rendered),
    )


def _port(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise _Invalid(f"ansible_port is {text!r}, expected a number from 1 to 65535")
    return int(text)


def _become(value: object) -> bool:
    if value in (None, ""):
        return True
    try:
        return boolean(value)
    except TypeError as error:
        raise _Invalid(f"ansible_become is {value!r}, expected true or false") from error


def _obstacle(rendered: Variables) -> str:
    connection = _text(rendered, "ansible_connection")
    if connection not in (*_SSH, *_LOCAL):
        return f"ansible_connection is {connection}, expected ssh or local"
    method = _text(rendered, "ansible_become_method")
    if method not in _SUDO:
        return f"ansible_become_method is {method}, and this program becomes root with sudo only"
    return ""


def _value(rendered: Variables, *names: str) -> object:
    return next((rendered[name] for name in names if name in rendered.values), None)


def _is_encrypted(value: object) -> bool:
    return isinstance(value, Mapping) and "__ansible_vault" in value


def _password(rendered: Variables, *names: str) -> str | None:
    """Return a password. One that is encrypted is none: the machine may not need it, or it comes
    from --ask-pass or --ask-become-pass.
    """
    value = _value(rendered, *names)
    return None if value in (None, "") or _is_encrypted(value) else str(value)


def _text(rendered: Variables, *names: str) -> str:
    value = _value(rendered, *names)
    if _is_encrypted(value):
        raise _Invalid(f"{names[0]} is encrypted, and has to be readable")
    return "" if value is None else str(value)


def _merged(rendered: Variables) -> dict[str, str]:
    """Return the options of ssh in the order of Ansible's command line: the first ones count."""
    key = _text(rendered, "ansible_ssh_private_key_file", "ansible_private_key_file")
    variables = (
        ("port", _text(rendered, "ansible_port", "ansible_ssh_port")),
        ("identityfile", key),
        ("user", _text(rendered, "ansible_user", "ansible_ssh_user")),
    )
    options: dict[str, str] = {}
    for keyword, value in (
        *_options(rendered, "ansible_ssh_args"),
        *variables,
        *_options(rendered, "ansible_ssh_common_args"),
        *_options(rendered, "ansible_ssh_extra_args"),
    ):
        is_later_way = keyword in _WAYS and any(way in options for way in _WAYS)
        if value and not is_later_way:
            options.setdefault(keyword, value)
    return options


def _options(rendered: Variables, variable: str) -> Iterator[tuple[str, str]]:
    """Yield the options of a command line of ssh. Short ones can be combined, such as -vJ HOST."""
    arguments = _text(rendered, variable)
    try:
        left = iter(shlex.split(arguments))
    except ValueError as error:
        raise _Invalid(f"{variable} is {arguments!r}: {error}") from error
    for word in left:
        if not word.startswith("-"):
            continue
        flags = word[1:]
        place = next((number for number, flag in enumerate(flags) if flag in _WITH_VALUE), None)
        if place is None:
            continue
        flag, value = flags[place], flags[place + 1 :] or next(left, "")
        if flag == "o":
            keyword, _sign, text = value.strip().replace("=", " ", 1).partition(" ")
            yield keyword.lower(), text.strip()
        elif flag == "F":
            yield _FILE, value
        elif flag in _KEYWORDS:
            yield _KEYWORDS[flag], value
