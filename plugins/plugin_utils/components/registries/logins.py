# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which logins of the admin would no longer count once the role has a file of logins?

Source: tests/recorded/registries.yml
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ansible_collections.metal.gpu.plugins.module_utils.observed.containers import RegistryFile
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import registries as places
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.layout import (
    DOCKER_HUB_LOGIN,
    Layout,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.wanted import (
    DOCKER_HUB,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import NoData, Plan


def refuse_hidden_logins(plan: Plan[NoData], node: Node, content: Layout) -> None:
    """Refuse logins of the admin that CRI-O or the kubelet would no longer look at.

    CRI-O has other files until it has a global_auth_file. The kubelet reads the first file that
    exists, and ours is the first.
    """
    logins = {one.path: _names(one.merge.get("auths")) for one in content.documents}
    ours = logins.get(places.CRIO_LOGIN)
    if ours and not node["engines"]["crio"]["auth_file"]:
        for path, found in _files(node, places.DEFAULT_LOGINS):
            helpers = {*found["helpers"]} - {"*"}  # credHelpers; it does not know credsStore
            if hidden := sorted((_logins(found) | helpers) - ours):
                plan.refuse("REGISTRY_LOGINS_HIDDEN", path=path, registries=", ".join(hidden))
    ours = logins.get(places.KUBELET_LOGIN)
    if ours and places.KUBELET_LOGIN not in node["registries"]["files"]:
        # A kubelet of systemd has no home, unless somebody has set one.
        of_home = (places.DOCKER_LOGIN,)
        for paths, code, tell in (
            (places.LOGINS_OF_KUBELET, "KUBELET_LOGINS_HIDDEN", plan.refuse),
            (of_home, "KUBELET_LOGINS_OF_ROOT", plan.notice),
        ):
            for path, found in _files(node, paths):
                if hidden := sorted(_logins(found) - ours):
                    registries = ", ".join(hidden)
                    tell(code, path=path, registries=registries, own=places.KUBELET_LOGIN)


def _files(node: Node, paths: Iterable[str]) -> list[tuple[str, RegistryFile]]:
    found = node["registries"]["files"]
    return [(path, found[path]) for path in paths if path in found]


def _logins(found: RegistryFile) -> set[str]:
    keys = (key.split(" > ") for key in found["values"])
    return _names({key[1]: None for key in keys if key[0] == "auths" and len(key) > 1})


def _names(auths: object) -> set[str]:
    names = {*auths} if isinstance(auths, Mapping) else set()
    return {DOCKER_HUB if one == DOCKER_HUB_LOGIN else str(one) for one in names}
