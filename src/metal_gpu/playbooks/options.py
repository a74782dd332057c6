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
_SHORT = {"-K": "--ask-become-pass", "-k": "--ask-pass", "-J": "--ask-vault-pass"}
_LONG = {"--ask-vault-password": "--ask-vault-pass"}


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


def prompts(found: Sequence[str]) -> list[str]:
    """Return which passwords these arguments make ansible-playbook ask for, by their option."""
    names = (_LONG.get(one, _SHORT.get(one, one)) for one in found)
    return [name for name in dict.fromkeys(names) if name in PROMPTS]


def default_inventory(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Return the inventory to use if the user names none; empty: Ansible decides.

    The file that `metal-gpu scan` writes counts only if nothing else is configured.
    """
    if environment.get("ANSIBLE_INVENTORY") or not (folder / DEFAULT_INVENTORY).is_file():
        return []
    config = Path(environment.get("ANSIBLE_CONFIG") or folder / "ansible.cfg")
    if config.is_dir():
        config /= "ansible.cfg"
    try:
        is_configured = _CONFIGURED.search(config.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        is_configured = None
    return [] if is_configured else [DEFAULT_INVENTORY]


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
