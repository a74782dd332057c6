# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Edit a long file and restore it, as config_document does: `python -m metal_bench.editing`.

Prints the seconds of the processor for each turn, as JSON.
"""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Callable
from functools import partial

from ansible_collections.metal.gpu.plugins.plugin_utils.documents import edit as documents
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import history, toml_reader

TURNS = 5
TABLE = """
# about {n}
[plugins.'io.containerd.x.v{n}']
  path = '/var/lib/{n}'  # where
  [plugins.'io.containerd.x.v{n}'.sub]
    list = [1, 2, "a"]  # three
    inline = {{a = 1, b = [0x2]}}
    "a key" = 1_000
"""
LONG = "version = 3\n" + "".join(TABLE.format(n=n) for n in range(250))
RUNTIME = {"runtime_type": "x", "options": {"BinaryName": "/usr/bin/x", "SystemdCgroup": True}}
PLUGIN = {"containerd": {"default_runtime_name": "x", "runtimes": {"x": RUNTIME}}}
EDITS = documents.Edits(merge={"plugins": {"io.containerd.cri.v1.runtime": PLUGIN}})
OF_ADMIN = "# the admin's\n"  # which is younger than the edit


def seconds(function: Callable[[], object]) -> list[float]:
    """Return the times on the processor, so that other processes count less.

    Nothing is known of the texts at the start of each.
    """
    times = []
    for _turn in range(TURNS):
        toml_reader.read.cache_clear()
        toml_reader.split.cache_clear()
        started = time.process_time()
        function()
        times.append(time.process_time() - started)
    return times


def edit() -> str:
    """Return the long file with the keys of a runtime."""
    content = history.change(LONG, "toml", EDITS)
    assert content is not None
    return content


def restore(content: str, past: history.History) -> None:
    """Take the keys back, and nothing else."""
    assert history.restore(content, "toml", past) == LONG + OF_ADMIN


def functions() -> dict[str, Callable[[], object]]:
    """Return what is measured. To read is what Python itself needs."""
    written = edit()
    past = history.extend(None, LONG, "toml", written=written)
    return {
        "read": lambda: tomllib.loads(LONG),
        "edit": edit,
        "restore": partial(restore, written + OF_ADMIN, past),
    }


if __name__ == "__main__":
    print(json.dumps({name: seconds(function) for name, function in functions().items()}))
