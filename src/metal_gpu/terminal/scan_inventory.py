# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory of `metal-gpu scan`: what would change, the question, and the writing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from metal_gpu import gpu_names, inventory_file
from metal_gpu.inventory_file import Entry, InventoryRefused, Prepared
from metal_gpu.scan import Machine
from metal_gpu.ssh.settings import Settings
from metal_gpu.terminal import exit_codes, output


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn what makes an inventory unusable into an error of the command."""
    try:
        yield
    except InventoryRefused as error:
        output.error(str(error))
        raise typer.Exit(exit_codes.USAGE) from error


def check(write: Path | None, other: Path | None, *, yes: bool) -> None:
    """Refuse an inventory that cannot be written, before anybody waits for the scan."""
    if other and not write:
        other, write = None, other
    with _refusals():
        if write:
            inventory_file.prepare(write, [])
        if other and other.exists():
            raise InventoryRefused(f"{other} exists. Name a new file with --output")
    if write and not other and write.exists() and not yes and not sys.stdin.isatty():
        output.error(
            f"{write} exists, and without a terminal nobody can be asked. Add --yes to merge, or "
            "--output FILE to leave it as it is"
        )
        raise typer.Exit(exit_codes.USAGE)


def prepared(
    write: Path | None, other: Path | None, machines: list[Machine], settings: Settings
) -> Prepared | None:
    """Return how the inventory would be; None if there is none, or nothing to write into it."""
    target = other or write
    if target is None:
        return None
    entries = [_entry(one, settings) for one in machines if one["gpus"]]
    if not entries:
        output.message(f"{target}: not changed, because no machine with a GPU was found")
        return None
    with _refusals():
        return inventory_file.prepare(target, entries, source=write if other else None)


def _entry(machine: Machine, settings: Settings) -> Entry:
    key = settings.key_file and str(Path(settings.key_file).absolute())
    variables: dict[str, object] = {
        "ansible_port": machine["port"] or settings.port,
        "ansible_user": machine["user"] or settings.user,
        "ansible_ssh_private_key_file": key,
        "ansible_ssh_common_args": settings.jump and f"-o ProxyJump={settings.jump}",
    }
    models = dict.fromkeys(gpu["model"] for gpu in machine["gpus"])
    return Entry(
        machine["host"],
        machine["address"],
        len(machine["gpus"]),
        tuple(map(gpu_names.group, models)),
        {key: value for key, value in variables.items() if value is not None},
        machine["hostname"] or "",
        tuple(machine["other_addresses"]),
    )


def write(change: Prepared, *, asks: bool, show: bool, quiet: bool) -> None:
    """Show the change of the inventory, ask if somebody must be asked, and write it."""
    for collision in change.collisions:
        output.message(collision, "yellow")
    if not change.is_changed:
        if not quiet:
            output.message(f"{change.path}: nothing to change")
        return
    if change.before is not None and show and (asks or not quiet):
        output.console().print(change.diff, end="")
    question = f"Write this to {change.path}?"
    if change.before is not None and asks and not typer.confirm(question, err=True):
        output.message(f"{change.path}: not changed")
        return
    with _refusals():
        inventory_file.save(change)
    if not quiet:
        output.message(f"{change.path}: written")
