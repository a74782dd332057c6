# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
from ansible_collections.metal.gpu.plugins.module_utils.probe.registry import PROBES

PLUGINS = Path(__file__).parents[5] / "plugins"
OBSERVED = sorted(
    path.parent.name for path in (PLUGINS / "plugin_utils/components").glob("*/observed.py")
)
FILES = {path.stem for path in (PLUGINS / "module_utils/probe/components").glob("*.py")}


def test_each_probe_has_an_interpreter():
    assert sorted(PROBES) == OBSERVED == sorted(FILES - {"__init__"})


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(lambda probe: probe.exists, id="exists"),
        pytest.param(lambda probe: probe.found, id="found"),
        pytest.param(lambda probe: probe.programs, id="programs"),
        pytest.param(lambda probe: probe.program_files, id="program_files"),
        pytest.param(lambda probe: probe.own_files, id="own_files"),
        pytest.param(lambda probe: (*probe.units, *probe.services), id="units"),
    ],
)
def test_no_probe_replaces_what_another_one_reads(names):
    counted = Counter(name for probe in PROBES.values() for name in names(probe))
    assert [name for name, count in counted.items() if count > 1] == []


def test_a_probe_without_questions_reads_nothing():
    empty = Probe()
    assert (empty.files, empty.units, dict(empty.services)) == ((), (), {})
    assert empty.values(None) == empty.commands(None) == empty.follow_up(None, {}) == {}
    assert empty.times(None) == {}
