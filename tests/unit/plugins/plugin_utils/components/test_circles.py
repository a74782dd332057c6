# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

from ansible_collections.metal.gpu.plugins.plugin_utils import components

FOLDER = Path(components.__path__[0])
IMPORT = re.compile(rf"^\s*from {re.escape(components.__name__)}\.(\w+)", re.MULTILINE)


def test_no_component_imports_another_in_a_circle() -> None:
    """What two of them share is below both, as components/engines is."""
    folders = {path.name: path for path in FOLDER.iterdir() if any(path.glob("*.py"))}
    imports = {
        name: {
            found
            for path in folder.glob("*.py")
            for found in IMPORT.findall(path.read_text())
            if found in folders and found != name
        }
        for name, folder in folders.items()
    }
    assert "engines" in imports["containerd"]
    TopologicalSorter(imports).prepare()  # raises CycleError with the circle
