# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Puts the collection into the wheel, where Ansible finds it: the files of the Galaxy artifact.

There is no `ansible_collections/__init__.py`, so the wheel shares this folder with the package
`ansible`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))  # hatchling runs this file, and imports no package
from artifact import Linked, make_manifests, read_galaxy, read_paths


class CollectionHook(BuildHookInterface):  # type: ignore[type-arg]
    """hatchling calls it for each wheel."""

    PLUGIN_NAME = "custom"
    made: TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name each file of the collection with its place in the wheel."""
        if version == "editable":
            return  # `make` links the checkout to where Ansible looks for it
        root = Path(self.root)
        galaxy = read_galaxy(root)
        home = f"ansible_collections/{galaxy['namespace']}/{galaxy['name']}"
        try:
            sources = {name: root / name for name in read_paths(root)}
            manifests = make_manifests(root)
        except Linked as error:
            raise SystemExit(f"metal-gpu: {error}") from None  # pip shows this line alone
        self.made = TemporaryDirectory(prefix="metal-gpu-wheel-")
        for name, content in manifests.items():
            sources[name] = Path(self.made.name, name)
            sources[name].write_bytes(content)
        for name, source in sorted(sources.items()):
            if source.is_file():
                build_data["force_include"][str(source)] = f"{home}/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what only the build needed."""
        if self.made:
            self.made.cleanup()
