# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a laboratory between two commands, in `.lab/NAME`."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

from metal_lab.processes import Process

# The folder of all laboratories. In a checkout, the script `lab` sets it.
FOLDER = Path(os.environ.get("METAL_LAB_FOLDER") or ".lab").absolute()


@dataclass
class State:
    """One laboratory. Its id derives from its folder, so that two projects never collide."""

    name: str
    processes: dict[str, Process] = field(default_factory=dict)
    gateway: str = ""
    nodes: dict[str, str] = field(default_factory=dict)  # name → IP address
    description: str = ""  # digest of the description and of all parts
    programs: str = ""  # folder of the control plane's programs and kubectl
    scenes: str = ""  # folder of the scenes
    mirror: str = ""  # folder that it serves
    registry: str = ""  # folder of its program; empty: there is none
    registry_content: str = ""  # folder with what it serves in a new laboratory

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory.yml"

    @property
    def facts(self) -> Path:
        return self.folder / "facts.json"

    @property
    def ssh_key(self) -> Path:
        return self.folder / "ssh" / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "ssh" / "known_hosts"

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
        return f"metal-lab={self.id}"

    def container(self, node: str) -> str:
        return f"{self.id}-{node}"

    def save(self) -> None:
        """Write the state atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "lab.json"
        draft = path.with_suffix(".new")
        content = {key: value for key, value in asdict(self).items() if key != "name"}
        draft.write_text(json.dumps(content, indent=2))
        draft.replace(path)

    def forget(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def load(name: str) -> State:
    """Return the state of laboratory `name`. It is empty if there is no such laboratory."""
    state = State(name)
    path = state.folder / "lab.json"
    if not path.exists():
        return state
    saved = json.loads(path.read_text())
    processes = {key: Process(*value) for key, value in saved.pop("processes").items()}
    return State(name, processes, **saved)


def names() -> list[str]:
    """Return the names of all laboratories of this folder."""
    return sorted(path.parent.name for path in FOLDER.glob("*/lab.json"))
