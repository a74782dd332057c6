# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NVIDIA runtime, as each engine registers it.

An engine has register_runtime.py in its folder, with `register_runtime`, `unregister_runtime`, its
STEPS, and its Data: what its tasks need to know.
"""

from __future__ import annotations

from posixpath import basename
from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils import mappings
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.components import ENGINES
from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import Circumstances
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Edit, Step

ROLE = "nvidia_container_runtime"
NAME = "nvidia"
PROGRAM = "/usr/bin/nvidia-container-runtime"

# Files with nothing but our settings of an engine.
DROP_INS = ("99-metal-gpu.toml", "99-metal-gpu.conf")

REGISTER = Step("register", "Register the NVIDIA runtime")


class Desired(Circumstances):
    """What is asked of an engine."""

    default: bool | None  # None: as the engine needs it
    restart_ok: bool
    cdi: bool
    replace_oci_hooks: bool


class Data(TypedDict, total=False):
    """What the tasks need to know, whichever engine it is."""

    config: Edit | None  # None: the engine is not installed yet
    is_default: bool  # the variable asks for nvidia as the default runtime


def default(engine: str | None, node: Node) -> str | None:
    """Return the default runtime of an engine, and `nvidia` if that is NVIDIA's by another name.

    nvidia-container-runtime.legacy and .cdi read the environment of the container, too.
    """
    found = mappings.text(node, "engines", engine or "", "default_runtime")
    binary = basename(
        mappings.text(node, "engines", engine or "", "runtimes", found or "", "binary") or ""
    )
    program = basename(PROGRAM)
    return NAME if binary == program or binary.startswith(f"{program}.") else found


def gives_gpus_by_default(engine: str | None, node: Node | None, *, is_wanted: bool) -> bool:
    """Tell whether an image can choose its GPUs, because `nvidia` is the default runtime.

    It counts before the role has set it, too: otherwise only the next run would bring the guard.
    Pods under Docker get no GPU in another way.
    """
    if engine == "docker" or is_wanted:
        return True
    return node is not None and default(engine, node) == NAME


def without_history(node: Node) -> tuple[list[str], list[str]]:
    """Return our drop-ins of engines that no history names, and what such a history would restore.

    A drop-in is written with a history. Settings in another file may be the admin's.
    """
    crio_files = node["engines"]["crio"]["config"]["runtime_files"].get(NAME, ())
    there = [*node["engines"]["containerd"]["config"]["imported_nvidia"], *crio_files]
    named = {basename(edit["path"]) for edit in node["ours"]["edits"]}
    drop_ins = [path for path in there if basename(path) in {*DROP_INS}.difference(named)]
    names = [
        engine.title
        for key, engine in ENGINES.items()
        if not named and NAME in mappings.section(node, "engines", key, "runtimes")
    ]
    return drop_ins, [f"the runtime {NAME} of {name}" for name in names]


def text(value: object) -> str | None:
    """Return a former value, if it is a text."""
    return value if isinstance(value, str) else None
