# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a laboratory between two commands, in `.lab/NAME` of the checkout."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from metal_lab.processes import Process

CHECKOUT = Path(__file__).resolve().parents[3]


@dataclass
class State:
    """One laboratory. Its id derives from its folder, so that two checkouts never collide."""

    name: str
    processes: dict[str, Process] = field(default_factory=dict)
    gateway: str = ""
    nodes: dict[str, str] = field(default_factory=dict)  # name → IP address
    description: str = ""  # digest of the description and of all parts
    programs: str = ""  # folder of the programs it runs

    @property
    def folder(self) -> Path:
        return CHECKOUT / ".lab" / self.name

    @property
    def id(self) -> str:
        return "metal-lab-" + hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]

    @property
    def loopback(self) -> str:
        """A loopback address that no other laboratory uses. 127.0.x.y stays free for others."""
        first, second, third = hashlib.sha256(self.id.encode()).digest()[:3]
        return f"127.{first % 254 + 1}.{second}.{third % 254 + 1}"

    @property
    def label(self) -> str:
        return f"metal.gpu.lab={self.id}"

    def container(self, node: str) -> str:
        return f"{self.id}-{node}"

    def save(self) -> None:
        """Write the state atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "lab.json"
        draft = path.with_suffix(".new")
        draft.write_text(
            json.dumps(
                {
                    "processes": self.processes,
                    "gateway": self.gateway,
                    "nodes": self.nodes,
                    "description": self.description,
                    "programs": self.programs,
                },
                indent=2,
            )
        )
        draft.replace(path)

    def forget(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def load(name: str) -> State:
    """Return the state of laboratory `name`. It is empty if there is no such laboratory."""
    state = State(name)
    path = state.folder / "lab.json"
    if path.exists():
        saved = json.loads(path.read_text())
        state.processes = {key: Process(*value) for key, value in saved["processes"].items()}
        state.gateway = saved["gateway"]
        state.nodes = saved["nodes"]
        state.description = saved["description"]
        state.programs = saved["programs"]
    return state


def names() -> list[str]:
    """Return the names of the laboratories that this checkout has."""
    return sorted(path.parent.name for path in (CHECKOUT / ".lab").glob("*/lab.json"))
