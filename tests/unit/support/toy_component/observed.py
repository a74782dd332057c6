# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is observed. It would be in plugin_utils/components/toy."""

from __future__ import annotations

from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.read.version import parse_version
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw


class Toy(TypedDict):
    """A program that needs a configuration."""

    version: str | None
    running: bool | None
    configured: bool | None


class Observed(TypedDict):
    """The toy."""

    toy: Toy


def observe(raw: Raw) -> Observed:
    return {
        "toy": {
            "version": parse_version(raw.stdout("toy")),
            "running": raw.is_active("toyd.service"),
            "configured": raw.file_exists("/etc/toyd.conf"),
        }
    }
