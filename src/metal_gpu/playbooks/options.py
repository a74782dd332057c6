# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of `metal-gpu site` and the like, as arguments of ansible-playbook."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DEFAULT_INVENTORY = "inventory.yml"  # what `metal-gpu scan` writes

_SERIAL = re.compile(r"[1-9]\d*%?")
# An inventory in ansible.cfg; the same file can have other sections with such a key.
_CONFIGURED = re.compile(r"^inventory\s*=\s*\S", re.MULTILINE)
# Options of ansible-playbook that ask for a password, and what it asks.
PROMPTS = {
    "--ask-become-pass": ("BECOME password", r"BECOME password.*:\s*?$"),
    "--ask-pass": ("SSH password", r"SSH password:\s*?$"),
    "--ask-vault-pass": ("Vault password", r"Vault password.*:\s*?$"),
}
# The same in short. Options without a value can be in one word, as in -bK.
_SHORT = {"K": "--ask-become-pass", "k": "--ask-pass", "J": "--ask-vault-pass"}
_CLUSTER = re.compile(r"-[bCDvkKJ]+")
_LONG = {**{name: name for name in PROMPTS}, "--ask-vault-password": "--ask-vault-pass"}
# The same as variables of the environment, and as keys of ansible.cfg.
# Source: ansible-core, lib/ansible/config/base.yml
_VARIABLES = {
    "ANSIBLE_BECOME_ASK_PASS": "--ask-become-pass",
    "ANSIBLE_ASK_PASS": "--ask-pass",
    "ANSIBLE_ASK_VAULT_PASS": "--ask-vault-pass",
}
_KEYS = {
    "become_ask_pass": "--ask-become-pass",
    "ask_pass": "--ask-pass",
    "ask_vault_pass": "--ask-vault-pass",
}
_TRUE = ("1", "on", "t", "true", "y", "yes")


class OptionInvalid(ValueError):
    """An option cannot be used; the message says which one and why."""


@dataclass(frozen=True)
class Options:
    """What the user has asked for."""

    inventory: Sequence[str] = ()
    check: bool = False
    diff: bool = False
    limit: str = ""
    serial: str = ""
    extra_vars: Sequence[str] = ()
    tags: Sequence[str] = ()
    skip_tags: Sequence[str] = ()
    ask_become_pass: bool = False
    report: str = ""
    more: Sequence[str] = ()  # handed on as they are


def arguments(options: Options) -> list[str]:
    """Return the arguments of ansible-playbook. Raises OptionInvalid."""
    found: list[str] = []
    for flag, values in (
        ("--inventory", options.inventory),
        ("--limit", [options.limit] if options.limit else []),
        ("--tags", options.tags),
        ("--skip-tags", options.skip_tags),
        ("--extra-vars", [*options.extra_vars, *_own_vars(options)]),
    ):
        for value in values:
            found += [flag, value]
    for flag, is_set in (
        ("--check", options.check),
        ("--diff", options.diff),
        ("--ask-become-pass", options.ask_become_pass),
    ):
        found += [flag] if is_set else []
    return [*found, *options.more]


def prompts(found: Sequence[str], folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Return which passwords ansible-playbook asks for, by their option.

    Raises OptionInvalid for a prompt that nobody could answer.
    """
    names = [name for one in found for name in _asks(one)]
    for variable, name in _VARIABLES.items():
        names += [name] if environment.get(variable, "").lower() in _TRUE else []
    configured = _config(folder, environment)
    for key, name in _KEYS.items():
        value = re.search(rf"^{key}\s*[=:]\s*(\w+)", configured, re.MULTILINE)
        names += [name] if value and value[1].lower() in _TRUE else []
    for one in (*found, environment.get("ANSIBLE_VAULT_IDENTITY_LIST", "")):
        if one.endswith("@prompt"):
            raise OptionInvalid(
                f"{one} asks for the password of a vault, which only --ask-vault-pass can do here. "
                "Use that, or a file with the password"
            )
    return [*dict.fromkeys(names)]


def _asks(argument: str) -> list[str]:
    """Return the options in an argument. ansible-playbook takes any beginning that is unique."""
    if _CLUSTER.fullmatch(argument):
        return [_SHORT[letter] for letter in argument if letter in _SHORT]
    if not argument.startswith("--ask-"):
        return []
    return [*dict.fromkeys(name for full, name in _LONG.items() if full.startswith(argument))][:1]


def check_inventory(named: Sequence[str]) -> None:
    """Raise OptionInvalid if a file does not exist. With a comma, Ansible takes a list of hosts."""
    missing = [one for one in named if "," not in one and not Path(one).exists()]
    if missing:
        raise OptionInvalid(
            f"{', '.join(missing)}: no such inventory. `metal-gpu scan --write` writes one"
        )


def default_inventory(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Return the inventory to use if the user names none; empty: Ansible decides.

    The file that `metal-gpu scan` writes counts only if nothing else is configured.
    """
    is_there = (folder / DEFAULT_INVENTORY).is_file()
    return [DEFAULT_INVENTORY] if is_there and not is_configured(folder, environment) else []


def is_configured(folder: Path, environment: Mapping[str, str]) -> bool:
    """Tell whether Ansible's configuration names an inventory."""
    if environment.get("ANSIBLE_INVENTORY"):
        return True
    return _CONFIGURED.search(_config(folder, environment)) is not None


def _config(folder: Path, environment: Mapping[str, str]) -> str:
    """Return the ansible.cfg that Ansible reads; empty if there is none."""
    named = environment.get("ANSIBLE_CONFIG")
    home = Path(environment.get("HOME", "/"))
    places = [folder / "ansible.cfg", home / ".ansible.cfg", Path("/etc/ansible/ansible.cfg")]
    for path in [Path(named), *places] if named else places:
        file = path / "ansible.cfg" if path.is_dir() else path
        if file.is_file():
            try:
                return file.read_text(encoding="utf-8", errors="replace")
            except OSError:
                return ""
    return ""


def _own_vars(options: Options) -> list[str]:
    values: dict[str, object] = {}
    if options.serial:
        values["metal_gpu_serial"] = parse_serial(options.serial)
    if options.report:
        values["verify_report"] = os.path.abspath(options.report)
    return [json.dumps(values)] if values else []


def parse_serial(text: str) -> list[int | str]:
    """Return the sizes of the batches, such as 1, 10 and "25%". Raises OptionInvalid."""
    sizes = [size.strip() for size in text.split(",")]
    for size in sizes:
        if not _SERIAL.fullmatch(size):
            raise OptionInvalid(
                f"--serial is {text!r}, and {size!r} in it is no size of a batch. Expected numbers "
                "of nodes or percentages, such as --serial 1 or --serial 1,10,25%"
            )
    return [size if size.endswith("%") else int(size) for size in sizes]
