# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The mirror of a laboratory that runs: its process, and its faults.

`lab fault mirror FAULT` breaks it. All faults stay until `restore`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from metal_lab import description, facts, processes, registry
from metal_lab.registry_faults import Fault, choose
from metal_lab.state import State

NAME = description.MIRROR


def command(directory: Path, address: str, port: int, *only: str) -> list[str | Path]:
    """Return the command that serves a directory, or some folders of it."""
    options = [f"--only={folder}" for folder in only]
    module = [sys.executable, "-m", "metal_lab.mirror_server"]
    return [*module, *options, directory, address, str(port)]


def run(state: State, *only: str) -> None:
    """Start the mirror, also if it runs."""
    stop(state)
    words = command(Path(state.mirror), state.gateway, facts.MIRROR_PORT, *only)
    log = state.folder / "logs" / f"{NAME}.log"
    state.processes[NAME] = processes.start(words, log)
    state.save()
    ready = partial(registry.listens, state.gateway, facts.MIRROR_PORT)
    processes.wait_until(ready, f"the {NAME}", state.processes[NAME], log)


def stop(state: State) -> None:
    """Stop the mirror. `is_up` tells, because the laboratory still expects the process."""
    processes.stop([process for name, process in state.processes.items() if name == NAME])


def _only(state: State, *folders: str) -> None:
    known = sorted(path.name for path in Path(state.mirror).iterdir())
    for folder in folders:
        if folder not in known:
            raise SystemExit(f"no folder {folder!r} in the mirror; it has: {', '.join(known)}")
    run(state, *folders)


FAULTS = {
    "down": Fault("connections are refused", stop),
    "only": Fault(
        "FOLDER...: the other folders are gone; with debian, there is the archive of Debian, and no"
        " repository of a vendor; with rocky and epel, the same of Rocky Linux",
        _only,
        required=1,
        optional=sys.maxsize,
    ),
    "restore": Fault("undo all faults of the mirror", run),
}


def inject(state: State, name: str, arguments: Sequence[str]) -> str:
    """Inject a fault into the mirror. Return what to say."""
    return choose(NAME, FAULTS, state, name, arguments)
