# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has no effect, and what is left, if a role adds no repository (`*_repository: false`)?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
    KEY_FILE,
    file_problem,
    is_enabled,
    is_ours,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import is_redhat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
        RepositoryVariables,
    )
    from ansible_collections.metal.gpu.plugins.plugin_utils.plan import NoData, Plan


_OF_ENGINES = "metal-gpu-docker"


def notice_unused(plan: Plan[NoData], role: str, variables: RepositoryVariables) -> None:
    """Report variables of the repository that are set."""
    values = {
        "url": variables["repository_url"],
        "suite": variables["repository_suite"],
        "key": variables["repository_key"],
        "fingerprint": variables["repository_fingerprint"],
    }
    names = [f"{role}_repository_{name}" for name, value in values.items() if value]
    if names:
        plan.notice("REPOSITORY_UNUSED", role=role, names=" and ".join(names))


def notice_kept(plan: Plan[NoData], node: Node, role: str, names: Iterable[str]) -> None:
    """Report files of an earlier run that the package manager still reads.

    The role does not delete them. The variable asks to add nothing, other packages can need the
    file, and the roles of two engines have the same one.
    """
    files, ours = node["repositories"], [name for name in names if is_ours(node, name)]
    found = [name for name in ours if is_enabled(files[name], name)]
    if not found:
        return
    whole = [name for name in found if not file_problem(node, name)]
    ways = [
        f"delete the entry {name} of {files[name]['path']}, which also has other entries"
        for name in found
        if name not in whole
    ]
    if whole:
        keys = [KEY_FILE.format(name) for name in whole] if is_redhat(node) else []
        command = " ".join(("rm -f", *(files[name]["path"] for name in whole), *keys))
        ways.insert(0, f"run `{command}`")
    way = " and ".join(ways)
    if _OF_ENGINES in found:
        way += " (the roles containerd and docker_ce share this file)"
    paths = " and ".join(files[name]["path"] for name in found)
    plan.notice("REPOSITORY_KEPT", role=role, paths=paths, way=way)
