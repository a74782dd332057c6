# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of an Ansible inventory."""

from __future__ import annotations

from pathlib import Path

from metal_gpu.hosts import Host


class InventoryError(Exception):
    """The inventory cannot be used. The message names the file, and the line where there is one."""


def read(path: Path, group: str | None = None) -> list[Host]:
    """Return the hosts of an inventory, or of one group of it, in its order.

    Raises InventoryError.
    """
    raise InventoryError(f"{path}: not yet")
