# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""The body of the program for a node: import the modules from memory, observe, and print.

`packed` is what node_program.text has packed.
"""

from __future__ import annotations

import base64
import importlib.abc
import importlib.machinery
import json
import os
import sys
import threading
import traceback
import zlib
from pathlib import Path
from typing import Any

packed: dict[str, Any] = globals()["packed"]
printing = threading.Lock()


def answer(found: dict[str, str]) -> None:
    """Print the answer and end. A thread that hangs in the kernel does not keep the process."""
    with printing:
        begin, end = packed["begin"], packed["end"]
        try:
            os.write(1, b"\n")
            data = f"{begin}\n{json.dumps(found)}\n{end}\n".encode("ascii")
            while data:
                data = data[os.write(1, data) :]
        finally:
            os._exit(0)


class FromMemory(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds the modules of the collection among the texts, and the packages around them."""

    def find_spec(
        self, name: str, _path: object = None, _target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        texts = packed["sources"]
        inside = any(one.startswith(f"{name}.") for one in texts)
        if name not in texts and not inside:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=inside)

    def get_source(self, name: str) -> str:
        return str(packed["sources"].get(name, ""))


def observe() -> dict[str, str]:
    """Return the raw data of this machine."""
    from ansible_collections.metal.gpu.plugins.module_utils.probe import limited
    from ansible_collections.metal.gpu.plugins.module_utils.probe.collect import collect
    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Node, Request
    from ansible_collections.metal.gpu.plugins.module_utils.probe.program_files import find_program

    request = Request(tuple(packed["packages"]), tuple(packed["repositories"]))
    raw = json.dumps(collect(Node(Path("/"), limited.run, find_program), request))
    return {"raw": base64.b64encode(zlib.compress(raw.encode(), 1)).decode("ascii")}


def give_up() -> None:
    answer({"error": f"the observation did not end within {packed['limit']:.0f} s"})


watch = threading.Timer(packed["limit"], give_up)
watch.daemon = True
watch.start()
sys.meta_path.insert(0, FromMemory())
try:
    result = observe()
except BaseException as error:
    place = traceback.extract_tb(error.__traceback__)[-1]
    result = {
        "error": f"{type(error).__name__}: {error}, in {place.name}, line {place.lineno} of "
        f"{os.path.basename(place.filename)}"
    }
answer(result)
