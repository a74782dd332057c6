# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The content of files of registries, for tasks with no_log.

A plan names files only, because Ansible prints it. These functions have the same input as the plan:
the variable registries_hosts, and the target that the plan has chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ansible_collections.metal.gpu.plugins.module_utils.read import registries as places
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.layout import (
    Target,
    layout,
    of_docker_hub,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.wanted import (
    Mirror,
    Trust,
    read,
)

_EVERYBODY_READS = (places.CONTAINERS_DROP_IN, places.CRIO_DROP_IN)


def document(hosts: Sequence[object], target: Target, path: str) -> dict[str, object]:
    """Return what the arguments of metal.gpu.config_document for a file are made of."""
    found = next(
        one for one in layout(target, read(hosts).registries).documents if one.path == path
    )
    is_shared = path in (*_EVERYBODY_READS, target["daemon_json"])
    return {**found.tasks, "mode": "0644" if is_shared else "0600"}


def certificate(hosts: Sequence[object], target: Target, path: str, created: Iterable[str]) -> str:
    """Return the block of a file of certificates, with the folders that the role made."""
    text = layout(target, read(hosts).registries).files[path]
    return "".join(f"{places.CREATED}{folder}\n" for folder in created) + text


def questions(hosts: Sequence[object], target: Target) -> list[dict[str, object]]:
    """Return what the node asks before a change: each mirror, and each registry with a login.

    A host gets one question for each way in which the engine talks to it.
    """
    asked: dict[tuple[object, ...], dict[str, object]] = {}
    for one in read(hosts).registries:
        servers = [(mirror.scheme, mirror.host, _shown(target, mirror)) for mirror in one.mirrors]
        shares = target["shares_login"] and bool(servers)
        if shares:  # so the login can be that of the mirror, and the registry refuse it
            login = {"username": one.trust.username, "password": one.trust.password}
            servers = [
                (scheme, host, trust._replace(**login) if scheme == "https" else trust)
                for scheme, host, trust in servers
            ]
        elif one.fallback and (one.trust.has_login or one.trust.has_files):
            of_hub = of_docker_hub([one]) if target["kind"] == "docker" else {}
            ca, certificate, key = of_hub.get(one.host, one.trust)[:3]
            trusted = one.trust._replace(ca=ca, certificate=certificate, key=key)
            servers.append(("https", one.server, trusted))
        for scheme, host, trust in servers:
            # The login of a registry is in the file of the kubelet, and not in a header.
            is_basic = target["basic_only"] and host != one.server
            asked[scheme, host, trust.username, is_basic] = {
                "url": f"{scheme}://{host}/v2/",
                "registry": one.host,
                "ca": trust.ca,
                "certificate": trust.certificate,
                "key": trust.key,
                "username": trust.username,
                "password": trust.password,
                "basic_only": is_basic,
            }
    return [*asked.values()]


def _shown(target: Target, mirror: Mirror) -> Trust:
    """Return how the engine talks to a mirror: Docker has no login for one."""
    is_docker = target["kind"] == "docker"
    return mirror.trust._replace(username="", password="") if is_docker else mirror.trust
