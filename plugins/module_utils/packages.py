# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Ask dpkg or rpm which packages are installed. No I/O: the commands are data.

Source: dpkg-query(1), section FIELDS; rpm-queryformat(7).
"""

from __future__ import annotations

from typing import NamedTuple

DPKG_QUERY = (
    "dpkg-query",
    "-W",
    "-f=${Package}\\t${Version}\\t${db:Status-Status}\\t${db:Status-Want}\\n",
)
# The same columns. rpm only knows installed packages, and holding them is a plugin's business.
RPM_QUERY = (
    "rpm",
    "-qa",
    "--queryformat=%{NAME}\\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\\tinstalled\\t-\\n",
)


class Package(NamedTuple):
    """An installed package."""

    version: str
    held: bool | None  # None: the package manager does not say


def parse_packages(stdout: str) -> dict[str, Package]:
    """Parse the answer to either query, keyed by package name; only installed ones."""
    rows = (line.split("\t") for line in stdout.splitlines())
    return {
        row[0]: Package(version=row[1], held=None if row[3] == "-" else row[3] == "hold")
        for row in rows
        if len(row) == 4 and row[2] == "installed"
    }
