# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write what `nvidia-smi -q -x` prints, from the record of healthy GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi_xml import parse_report
from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output

RECORD = yaml.safe_load((Path(__file__).parents[2] / "recorded/nvidia_smi_xml.yml").read_text())
BRANCH = 580
COMPLETED = {"fabric/state": "Completed", "fabric/status": "Success", "fabric/cliqueId": "0"}


def in_branch(row: Mapping[str, Any], branch: int) -> bool:
    return row.get("first branch", 0) <= branch <= row.get("last branch", 9999)


def values(generation: str, branch: int = BRANCH) -> dict[str, str]:
    """Return the values of a healthy GPU, by the paths of their elements."""
    rows = [row for row in RECORD["elements"] if in_branch(row, branch)]
    found = {row["path"]: row["values"].get(generation, row["values"].get("all")) for row in rows}
    return {path: value for path, value in found.items() if value not in (None, "-")}


def report(
    gpus: Iterable[Mapping[str, str]],
    generation: str,
    branch: int = BRANCH,
    changes: Mapping[str, Mapping[str, str | None]] | None = None,
) -> str:
    """Return the report of GPUs with `address`, `uuid` and `name`.

    `changes` are other values by address, or for all GPUs ("*"); None removes an element.
    """
    (doctype,) = (row["doctype"] for row in RECORD["schemas"] if in_branch(row, branch))
    elements = []
    for gpu in gpus:
        named = {"product_name": gpu["name"], "uuid": gpu["uuid"]}
        others = {**(changes or {}).get("*", {}), **(changes or {}).get(gpu["address"], {})}
        elements.append(_gpu(gpu["address"], {**named, **values(generation, branch), **others}))
    return (
        f'<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "{doctype}">\n<nvidia_smi_log>\n'
        f"<driver_version>{branch}.178.04</driver_version>\n<cuda_version>13.0</cuda_version>\n"
        f"<attached_gpus>{len(elements)}</attached_gpus>\n{''.join(elements)}</nvidia_smi_log>\n"
    )


def _gpu(address: str, found: Mapping[str, str | None]) -> str:
    gpu = ElementTree.Element("gpu", id=f"0000{address.upper()}")
    for path, value in found.items():
        parent = gpu
        for name in path.split("/") if value is not None else ():
            child = parent.find(name)
            parent = ElementTree.SubElement(parent, name) if child is None else child
        if value is not None:
            parent.text = value
    ElementTree.indent(gpu, "\t")
    return ElementTree.tostring(gpu, encoding="unicode") + "\n"


def parsed(
    address: str, generation: str = "hopper", name: str = "NVIDIA H100", **values: Any
) -> dict[str, Any]:
    """Return what is observed of a healthy GPU, with other values."""
    gpu = {"address": address, "uuid": f"GPU-{'0' * 8}-0000-0000-0000-{'0' * 12}", "name": name}
    found = parse_report(Output(0, report([gpu], generation), ""))
    (health,) = found["gpus"]
    return {**health, **values}
