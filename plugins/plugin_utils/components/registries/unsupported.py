# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does an engine not have of the desired registries?

Source: tests/recorded/registries.yml
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.metal.gpu.plugins.module_utils.read import registries as places
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.layout import Target
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.wanted import (
    ALL,
    DOCKER_HUB,
    Registry,
)


def unsupported(target: Target, registries: Sequence[Registry]) -> Iterator[tuple[str, str]]:
    """Yield the registries whose settings an engine does not have, each with the reason."""
    kind = target["kind"]
    for one in registries:
        if kind == "docker":
            yield from ((one.host, why) for why in _not_in_docker(one))
        elif kind == "crio" and one.host == ALL:
            yield one.host, "CRI-O has mirrors for registries by their names only"
        elif kind in places.REGISTRIES_YAML and not one.fallback:
            option = "disable-default-registry-endpoint in its config.yaml"
            yield one.host, f"{kind} turns the fallback off for all registries, by {option}"
        if one.trust.has_login and (kind == "containerd" or target["shares_login"]):
            for url in (mirror.url for mirror in one.mirrors if mirror.scheme == "http"):
                offers = f"{kind} offers the login of a registry to its mirrors"
                yield one.host, f"{offers}, so also to {url}, where it can be read on its way"


def _not_in_docker(one: Registry) -> Iterator[str]:
    if one.host == DOCKER_HUB:
        pairs = {(trust.certificate, trust.key) for trust in one.trusts if trust.certificate}
        if len(pairs) > 1:
            yield "Docker has one client certificate for docker.io and all its mirrors"
    if not one.mirrors:
        return
    if one.host != DOCKER_HUB:
        yield "Docker has mirrors for docker.io only"
    if not one.fallback:
        yield "Docker always asks the registry itself, too"
    for mirror in one.mirrors:
        if mirror.trust.has_login and not mirror.is_bare:
            yield f"Docker sends no login to a mirror, so none to {mirror.host}"
        if mirror.path:
            yield f"most versions of Docker refuse a mirror with a path, such as {mirror.path}"
