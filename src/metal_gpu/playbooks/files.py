# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which playbooks the installed collection has, and what their comments say about them.

The command has a subcommand for each of these files, so this module is loaded for `--help` and
imports nothing heavy.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

COLLECTION = "metal.gpu"

_COMMAND = re.compile(
    rf"^ansible-playbook(?P<before>.*?) {re.escape(COLLECTION)}\.(?P<name>\w+)(?P<after>.*)$"
)
_OF_CLUSTER = re.compile(r"name: metal\.gpu\.device_plugin$|tasks_from: (prove|leak)\.yml", re.M)
_REMARK = re.compile(r"\s{2,}#|(?<=\S)\s+#\s")


class Description(NamedTuple):
    """The comment at the start of a playbook."""

    text: str  # what the playbook does
    examples: tuple[str, ...]  # as commands of metal-gpu


def folder() -> Path | None:
    """Return the folder of the collection; None if it is not installed."""
    try:
        spec = find_spec(f"ansible_collections.{COLLECTION}")
    except ModuleNotFoundError:
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def names(collection: Path) -> list[str]:
    """Return the names of the playbooks that users may run."""
    found = (path.stem for path in (collection / "playbooks").glob("*.yml"))
    return sorted(name for name in found if not name.startswith("_"))


def path(collection: Path, name: str) -> Path:
    return collection / "playbooks" / f"{name}.yml"


def has_batches(text: str) -> bool:
    """Tell whether a playbook can change its nodes in batches."""
    return "metal_gpu_serial" in text


def has_report(text: str) -> bool:
    """Tell whether a playbook ends with verdicts, which verify_report writes into a file."""
    return "tasks_from: failures.yml" in text


def has_cluster(text: str) -> bool:
    """Tell whether a playbook talks to the API server of a cluster."""
    return bool(_OF_CLUSTER.search(text))


def describe(text: str) -> Description:
    """Parse the comment at the start of a playbook."""
    lines = []
    for line in text.splitlines():
        if line.startswith("- "):
            break
        if line.startswith("#") and "SPDX-" not in line:
            lines.append(line[1:])
    examples, words = [], []
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        if line.startswith("   "):
            examples.append(_example(" ".join(line.split())))
        else:
            words.append(line.strip())
    paragraphs = "\n".join(words).strip().split("\n\n")
    return Description(" ".join(paragraphs[0].split()), tuple(filter(None, examples)))


def _example(line: str) -> str:
    """Return an example as a command of metal-gpu; empty if it is a remark."""
    command, *_remark = _REMARK.split(line)
    match = _COMMAND.match(command.strip())
    if match is None:
        return ""
    arguments = f"{match['before']}{match['after']}".replace(" -i inventory.yml", "")
    return f"metal-gpu {match['name']}{arguments}".rstrip()
