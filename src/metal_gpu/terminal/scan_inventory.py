# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory of `metal-gpu scan`: what would change, the question, and the writing."""

from __future__ import annotations

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


def check(path: Path | None) -> None:
    """Refuse an inventory that cannot be used, before anybody waits for the scan."""
    with _refusals():
        if path:
            inventory_file.prepare(path, [])


def prepared(path: Path | None, machines: list[Machine], settings: Settings) -> Prepared | None:
    """Return what the inventory has to get; None if there is none, or no machine for it."""
    if path is None:
        return None
    entries = [_entry(one, settings) for one in machines if one["gpus"]]
    if not entries:
        output.message(f"{path}: not changed, because no machine with a GPU was found")
        return None
    with _refusals():
        return inventory_file.prepare(path, entries)


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
    )


def write(change: Prepared, *, show: bool, quiet: bool) -> None:
    """Write a new inventory, or print what the existing one lacks."""
    if change.is_new:
        with _refusals():
            inventory_file.save(change)
    elif change.lines and show:
        output.console().print(change.lines, end="", markup=False, highlight=False, soft_wrap=True)
    for collision in change.collisions:
        output.message(collision, "yellow")
    if not quiet and not change.collisions:
        output.message(f"{change.path}: {'written' if change.is_new else 'nothing to add'}")
