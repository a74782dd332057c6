# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has no effect, and what is left, if a role adds no repository (`*_repository: false`)?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
    KEY_FILE,
    is_enabled,
    is_ours,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import is_redhat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
    from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
        RepositoryVariables,
    )
    from ansible_collections.metal.gpu.plugins.plugin_utils.plan import NoData, Plan


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
    ours = [name for name in names if is_ours(node, name)]
    found = [name for name in ours if is_enabled(node["repositories"][name])]
    if not found:
        return
    paths = [node["repositories"][name]["path"] for name in found]
    keys = [KEY_FILE.format(name) for name in found] if is_redhat(node) else []
    command = " ".join(("rm -f", *paths, *keys))
    plan.notice("REPOSITORY_KEPT", role=role, paths=" and ".join(paths), command=command)
