# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Inventories of a scenario with other registries, and what engines say about failed pulls."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

RECORD = Path(__file__).resolve().parents[2] / "tests/recorded/registries.yml"
# No node has this image: NVIDIA's program for older drivers than those of the laboratory.
NEVER_PULLED = "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda10.2"


def without_login(laboratory: Any, path: Path) -> Path:
    """Return an inventory in which nobody has given a login."""

    def edit(place: dict[str, Any]) -> None:
        place.pop("username", None)
        place.pop("password", None)

    return _edited(laboratory, path, edit)


def with_certificate(laboratory: Any, path: Path) -> Path:
    """Return an inventory whose nodes also show a certificate to the registry."""
    registry = laboratory.facts["registry"]

    def edit(place: dict[str, Any]) -> None:
        if "ca" in place:  # a server, and not a name that others answer for
            place |= {key: registry[key] for key in ("client_certificate", "client_key")}

    return _edited(laboratory, path, edit)


def _edited(laboratory: Any, path: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    """Return an inventory in which each registry and each mirror is edited."""

    def edit_all(group: Any) -> None:
        for host in group["hosts"].values():
            for item in host["registries_hosts"]:
                for place in (item, *item.get("mirrors", ())):
                    edit(place)

    return Path(laboratory.inventory_with(path, edit_all))


def recorded(node: Any, code: str) -> str:
    """Return a pattern of what the engine of a node says about a failed pull, as recorded."""
    engine = node["status"]["nodeInfo"]["containerRuntimeVersion"].partition("://")[0]
    engines = ("all", engine.replace("-", ""))  # cri-o
    rows = yaml.safe_load(RECORD.read_text())["words"]
    texts = [row["text"] for row in rows if row["code"] == code and row["engine"] in engines]
    assert texts, f"{engine}: nothing is recorded for {code}"
    return "|".join(".*".join(map(re.escape, text.split("…"))) for text in texts)
