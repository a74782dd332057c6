# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table at the end of metal.gpu.docker_hosts, read from its output."""

from __future__ import annotations

from typing import Any


def cells(run: Any) -> dict[str, list[str]]:
    """Return the cells of each host in the table, without its GPU."""
    lines = [line.strip(' ",').split() for line in run.output.splitlines()]
    return {line[0]: line[3:] for line in lines if line[1:2] == ["Tesla"]}


def rows(run: Any) -> dict[str, list[str]]:
    """Return the last two cells of each host in the table."""
    return {host: row[-2:] for host, row in cells(run).items()}
