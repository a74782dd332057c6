# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts whose vendors are out of reach, of any distribution: whom they ask."""

from __future__ import annotations

from pathlib import Path

from air_gap import AirGap


def test_nodes_ask_nothing_of_the_internet(laboratory):
    """The archive of the distribution is at the same address, as a mirror that the admin has."""
    gap = AirGap(laboratory.name)
    of_archive = tuple(f"/{folder}/" for folder in gap.archives)
    registry = Path(laboratory.facts["registry"]["log"]).read_text()
    for node in laboratory.gpu_count:
        asked = gap.asked("mirror", laboratory.addresses[node])
        assert asked
        assert [path for path in asked if not path.startswith(of_archive)] == []
        assert f'"{laboratory.addresses[node]}:' not in registry
