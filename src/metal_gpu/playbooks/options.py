# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of `metal-gpu site` and the like, as arguments of ansible-playbook."""

from __future__ import annotations

import configparser
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from metal_gpu.inventory import InventoryError, check_syntax
from metal_gpu.trust import distrust, distrust_inventory

DEFAULT_INVENTORY = "inventory.yml"  # what `metal-gpu scan` writes

_CONFIG = "ansible.cfg"
_OF_ANSIBLE = Path("/etc/ansible/hosts")
_SERIAL = re.compile(r"[1-9]\d*%?")
# Options of ansible-playbook that ask for a password, and what it asks.
PROMPTS = {
    "--ask-become-pass": ("BECOME password", r"BECOME password.*:\s*?$"),
    "--ask-pass": ("SSH password", r"SSH password:\s*?$"),
    "--ask-vault-pass": ("Vault password", r"Vault password.*:\s*?$"),
}
# The same in short. Options without a value can be in one word with others, as in -bK.
_SHORT = {"K": "--ask-become-pass", "k": "--ask-pass", "J": "--ask-vault-pass"}
_CLUSTER = re.compile(r"-(?P<letters>[bCDvkKJ]*)(?P<inventory>i?)(?!-)")
_LONG = {**{name: name for name in PROMPTS}, "--ask-vault-password": "--ask-vault-pass"}
# The same as variables of the environment, and as keys of ansible.cfg.
# Source: ansible-core, lib/ansible/config/base.yml
_SETTINGS = (
    ("ANSIBLE_BECOME_ASK_PASS", "privilege_escalation", "become_ask_pass", "--ask-become-pass"),
    ("ANSIBLE_ASK_PASS", "defaults", "ask_pass", "--ask-pass"),
    ("ANSIBLE_ASK_VAULT_PASS", "defaults", "ask_vault_pass", "--ask-vault-pass"),
)
_TRUE = ("1", "on", "t", "true", "y", "yes")
# A vault id whose password ansible-playbook asks for, with or without a name of the vault.
# Source: ansible-core 2.21.5, lib/ansible/cli/__init__.py, setup_vault_secrets
_ASKED_VAULT = re.compile(r"(?:.*@)?prompt(?:_ask_vault_pass)?")


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
    kubeconfig: str = ""
    context: str = ""
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

    Raises OptionInvalid for a password that nobody could give.
    """
    _path, config = _config(folder, environment)
    names = [name for one in found for name in _asks(one)]
    for variable, section, key, name in _SETTINGS:
        values = (environment.get(variable, ""), _value(config, section, key))
        names += [name] if any(one.lower() in _TRUE for one in values) else []
    vaults = [
        *_vaults(found),
        *environment.get("ANSIBLE_VAULT_IDENTITY_LIST", "").split(","),
        *_value(config, "defaults", "vault_identity_list").split(","),
    ]
    for one in map(str.strip, vaults):
        if _ASKED_VAULT.fullmatch(one):
            raise OptionInvalid(
                f"{one} asks for the password of a vault, which only --ask-vault-pass can do here. "
                "Use that, or a file with the password"
            )
    for one in found:
        if one == "-" or one.endswith("=-"):
            raise OptionInvalid(
                f"{one} is standard input, which ansible-playbook does not have here. Use a file, "
                "or an option that asks, such as --ask-become-pass"
            )
    return [*dict.fromkeys(names)]


def _asks(argument: str) -> list[str]:
    """Return the options in an argument. ansible-playbook takes any beginning that is unique."""
    if match := _CLUSTER.match(argument):
        return [_SHORT[letter] for letter in match["letters"] if letter in _SHORT]
    if not argument.startswith("--ask-"):
        return []
    return [*dict.fromkeys(name for full, name in _LONG.items() if full.startswith(argument))][:1]


def _vaults(found: Sequence[str]) -> Iterator[str]:
    """Yield the values of --vault-id."""
    for argument, following in zip(found, [*found[1:], ""], strict=False):
        name, equals, value = argument.partition("=")
        if name.startswith("--vault-i") and "--vault-id".startswith(name):
            yield value if equals else following


def check_more(more: Sequence[str]) -> None:
    """Raise OptionInvalid if what is handed on does not start with an option.

    ansible-playbook would take it for another playbook, and run this one first.
    """
    if more and not more[0].startswith("-"):
        raise OptionInvalid(
            f"{more[0]} is no option. --limit chooses hosts, and --inventory names an inventory"
        )


def names_inventory(more: Sequence[str]) -> bool:
    """Tell whether arguments of ansible-playbook name an inventory."""
    return any(
        argument.startswith("--inv") or ((match := _CLUSTER.match(argument)) and match["inventory"])
        for argument in more
    )


def check_inventory(named: Sequence[str]) -> None:
    """Raise OptionInvalid if a file does not exist, or is YAML that cannot be parsed.

    With a comma, Ansible takes a list of hosts.
    """
    missing = [one for one in named if "," not in one and not Path(one).exists()]
    if missing:
        raise OptionInvalid(
            f"{', '.join(missing)}: no such inventory. `metal-gpu scan --write` writes one"
        )
    for path in map(Path, named):
        if path.suffix in (".yml", ".yaml") and path.is_file() and not _is_ini(path):
            try:
                check_syntax(path)
            except InventoryError as error:
                raise OptionInvalid(str(error)) from error


def _is_ini(path: Path) -> bool:
    """Tell whether a file begins with a section, so that no YAML is meant."""
    lines = path.read_text("utf-8", "replace").splitlines()
    first = next((one for one in map(str.strip, lines) if one and one[0] not in "#;"), "")
    return bool(re.match(r"\[[\w:.-]+\]", first))


def default_inventory(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Return the inventory to use if the user names none; empty: Ansible decides.

    The file that `metal-gpu scan` writes counts only if nothing else is configured. An inventory
    can start programs here, so raises OptionInvalid if another user can change it.
    """
    own = folder / DEFAULT_INVENTORY
    if not own.is_file():
        return []
    configured = configured_inventories(folder, environment)
    # Not resolved: Ansible looks for group_vars beside the link, and not beside the file.
    if any(os.path.abspath(one) != os.path.abspath(own) for one in configured):
        return []
    if why := distrust_inventory(own):
        raise OptionInvalid(
            f"{DEFAULT_INVENTORY} in this folder is not used, because {why}. If you trust it, add "
            f"`--inventory {DEFAULT_INVENTORY}`"
        )
    return [DEFAULT_INVENTORY]


def check_some_inventory(folder: Path, environment: Mapping[str, str]) -> None:
    """Raise OptionInvalid if Ansible would have no inventory, and so no host."""
    if not (configured_inventories(folder, environment) or _OF_ANSIBLE.exists()):
        raise OptionInvalid(
            f"this folder has no {DEFAULT_INVENTORY}, and nothing names another inventory. "
            f"`metal-gpu scan HOST --write {DEFAULT_INVENTORY}` writes one; --inventory FILE names "
            "one"
        )


def configured_inventories(folder: Path, environment: Mapping[str, str]) -> list[Path]:
    """Return the inventories that Ansible's configuration names."""
    base, text = folder, environment.get("ANSIBLE_INVENTORY", "")
    if not text:
        path, config = _config(folder, environment)
        base, text = path.parent, _value(config, "defaults", "inventory")
    words = filter(None, map(str.strip, text.split(",")))
    return [base / os.path.expanduser(os.path.expandvars(one)) for one in words]


def names_interpreter(folder: Path, environment: Mapping[str, str]) -> bool:
    """Tell whether Ansible's configuration names the Python of the machines, or how to find it."""
    _path, config = _config(folder, environment)
    by_file = _value(config, "defaults", "interpreter_python")
    return bool(by_file or environment.get("ANSIBLE_PYTHON_INTERPRETER"))


def ignored_config(folder: Path, environment: Mapping[str, str]) -> Path | None:
    """Return the ansible.cfg of a folder if Ansible ignores it; None if not, or there is none.

    It ignores that of a folder into which every user can write, unless ANSIBLE_CONFIG names a file.
    """
    own = folder / _CONFIG
    is_ignored = _is_public(folder) and not _named_config(folder, environment)
    return own if is_ignored and own.exists() else None


def untrusted_config(folder: Path, environment: Mapping[str, str]) -> str:
    """Return why Ansible should not start in a folder: another user can change its ansible.cfg.

    Ansible ignores only that of a folder into which every user can write.
    """
    own = folder / _CONFIG
    if _named_config(folder, environment) or _is_public(folder) or not _is_readable(own):
        return ""
    why = distrust(own)
    return f"{own}: {why}. If you trust it, set ANSIBLE_CONFIG={_CONFIG}" if why else ""


def _config(folder: Path, environment: Mapping[str, str]) -> tuple[Path, configparser.ConfigParser]:
    """Return the ansible.cfg that Ansible reads; empty if there is none, or it cannot be parsed.

    Then Ansible names the file and the line.

    Source: ansible-core 2.21.5, lib/ansible/config/manager.py, find_ini_config_file
    """
    parser = configparser.ConfigParser(inline_comment_prefixes=(";",))  # as Ansible
    named = _named_config(folder, environment)
    home = Path(environment.get("HOME", "/"))
    places = [] if _is_public(folder) else [folder / _CONFIG]
    places += [home / ".ansible.cfg", Path("/etc/ansible/ansible.cfg")]
    for file in [named] if named else filter(_is_readable, places):
        with suppress(OSError, configparser.Error):
            parser.read_string(file.read_text(encoding="utf-8", errors="replace"))
        return file, parser
    return folder / _CONFIG, parser


def _named_config(folder: Path, environment: Mapping[str, str]) -> Path | None:
    """Return the file that ANSIBLE_CONFIG names, also by its folder; None if there is none.

    The folder of an empty value is this one.
    """
    if "ANSIBLE_CONFIG" not in environment:
        return None
    named = os.path.expanduser(os.path.expandvars(environment["ANSIBLE_CONFIG"]))
    place = Path(os.path.normpath(folder / named))
    file = place / _CONFIG if os.path.isdir(place) else place
    return file if _is_readable(file) else None


def _is_readable(file: Path) -> bool:
    """Tell whether Ansible takes a file, which can also be a device, or a folder by mistake."""
    return os.access(file, os.R_OK)


def _is_public(folder: Path) -> bool:
    """Tell whether every user can write into a folder, as into /tmp."""
    return bool(folder.stat().st_mode & stat.S_IWOTH)


def _value(config: configparser.ConfigParser, section: str, key: str) -> str:
    return config.get(section, key, raw=True, fallback="").strip()


def _own_vars(options: Options) -> list[str]:
    values: dict[str, object] = {}
    if options.serial:
        values["metal_gpu_serial"] = parse_serial(options.serial)
    if options.report:
        values["verify_report"] = path = os.path.abspath(options.report)
        folder = os.path.dirname(path)
        if os.path.isdir(path) or not os.access(folder, os.W_OK):
            what = "it is a folder" if os.path.isdir(path) else f"no file can be in {folder}"
            raise OptionInvalid(f"--report {options.report}: {what}")
    if options.kubeconfig:  # several files, as in KUBECONFIG
        paths = map(os.path.expanduser, filter(None, options.kubeconfig.split(os.pathsep)))
        values["metal_gpu_kubeconfig"] = os.pathsep.join(map(os.path.abspath, paths))
    if options.context:
        values["metal_gpu_context"] = options.context
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
