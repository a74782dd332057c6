# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which systems and GPUs do the nodes of the scenarios have?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import System
from ansible_collections.metal.gpu.tests.unit.golden.nodes import CARDS, ROOT

# A card with the drivers of another one, of which the rows are.
_SAME_AS = {"a100": "t4"}


class Node(NamedTuple):
    """A node of a scenario."""

    scenario: str
    system: str  # as the records call it: debian-12
    generations: str  # of its GPUs


def of_system(system: System) -> list[str]:
    """Return the scenarios that have nodes of a system."""
    name = f"{system.id}-{system.version}"
    return sorted({node.scenario for node in nodes() if node.system == name})


def nodes() -> Iterator[Node]:
    generations = {card.name.rpartition(" ")[2].lower(): card.generations for card in CARDS}
    for path in sorted(ROOT.glob("molecule/*/lab.yml")):
        for node in yaml.safe_load(path.read_text())["nodes"]:
            model = node["machine"].partition("x")[0]
            yield Node(
                path.parent.name, _system(node["os"]), generations[_SAME_AS.get(model, model)]
            )


def _system(name: str) -> str:
    """Return what the records call a system of the laboratory: ubuntu2404 is ubuntu-24.04."""
    distribution = name.rstrip("0123456789")
    version = name.removeprefix(distribution)
    return f"{distribution}-{version[:2]}.{version[2:]}".rstrip(".")
