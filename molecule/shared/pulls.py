# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods that pull an image, and what each engine says if a registry does not give it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import registries

IMAGE = registries.NEVER_PULLED


def pull(laboratory: Any, *options: str, inventory: Path | None = None) -> Any:
    """Run a pod with the image on each node, and return the run."""
    variables = ("-e", "verify_level=list", "-e", f"verify_smoke_image={IMAGE}")
    return laboratory.playbook("metal.gpu.verify", *variables, *options, inventory=inventory)


def fails(laboratory: Any, code: str, words: str = "", inventory: Path | None = None) -> None:
    """Assert that no node gets the image. The kubelet has the words of its engine, as recorded."""
    # A pod can start later if the registry comes back, so it is waited for.
    run = pull(laboratory, "-e", "verify_smoke_timeout=30", inventory=inventory)
    assert run.returncode != 0
    events = laboratory.objects("events", "--namespace=default")["items"]
    for node in laboratory.addresses:
        # CRI-O names the image at the mirror; the tag is the same.
        assert re.search(rf"{code} {node}: .*{IMAGE.rpartition(':')[2]}", run.words)
        said = [event["message"] for event in events if event.get("source", {}).get("host") == node]
        pattern = words or registries.recorded(laboratory.objects("node", node), code)
        assert any(IMAGE in one and re.search(pattern, one) for one in said), said
