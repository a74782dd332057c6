# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which files does an engine need for the desired registries, and what is in them?

The content has secrets. Plans only get names and fingerprints from it; the tasks get it from the
filter, and print nothing.

Source: tests/recorded/registries.yml
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import join
from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.read import registries as places
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.wanted import (
    DOCKER_HUB,
    DOCKER_HUB_HOST,
    Mirror,
    Registry,
    Trust,
    servers,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.edit import Language

# The key of Docker's own registry in its file of logins.
DOCKER_HUB_LOGIN = "https://index.docker.io/v1/"
_CAPABILITIES = ["pull", "resolve"]


class Target(TypedDict):
    """Where the files of a node's engine are. It has no secrets, so a plan can have it."""

    kind: str  # containerd, docker, crio, or the name of a distribution with a registries.yaml
    folders: dict[str, str]  # of containerd: the folder of hosts.toml by the name of the registry
    certificates: str  # the folder of folders with certificates
    daemon_json: str
    logins: list[str]  # files in the form of Docker's config.json
    shares_login: bool  # the engine sends the login of a registry to its mirrors, and no other
    basic_only: bool  # the engine asks for no token with the login of a mirror


@dataclass(frozen=True)
class Document:
    """What a file must have. Keys of the admin stay."""

    path: str
    language: Language
    merge: dict[str, object] = field(default_factory=dict)
    append: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()  # items of lists
    has_secrets: bool = False

    @property
    def tasks(self) -> dict[str, object]:
        """What the arguments of metal.gpu.config_document are made of."""
        lists = [{"path": [*path], "items": [*items]} for path, items in self.append]
        return {"path": self.path, "language": self.language, "merge": self.merge, "append": lists}


@dataclass(frozen=True)
class Layout:
    """All files for the desired registries."""

    documents: tuple[Document, ...]
    files: Mapping[str, str]  # certificates and keys in PEM, by path


def layout(target: Target, registries: Sequence[Registry]) -> Layout:
    """Return the files for an engine."""
    kind = target["kind"]
    make = _DOCUMENTS.get(kind, _registries_yaml)
    return Layout(tuple(make(target, registries)), _files(target, registries))


def own_folder(target: Target, host: str) -> str:
    """Return the folder of our certificates for a server."""
    return join(target["certificates"], host)


def _files(target: Target, registries: Sequence[Registry]) -> dict[str, str]:
    found: dict[str, str] = {}
    trusts = servers(registries)
    if target["kind"] == "docker":
        trusts = {**trusts, **of_docker_hub(registries)}
        trusts.pop(DOCKER_HUB_HOST, None)
    elif target["kind"] == "crio" and DOCKER_HUB_HOST in trusts:
        trusts[DOCKER_HUB] = trusts.pop(DOCKER_HUB_HOST)  # it knows no other name for it
    for host, trust in trusts.items():
        for name, text in zip(places.OWN, trust[:3], strict=True):
            if text:
                found[join(own_folder(target, host), name)] = _pem(text)
    return found


def of_docker_hub(registries: Sequence[Registry]) -> dict[str, Trust]:
    """Return whom Docker with containerd's image store trusts for docker.io and its mirrors.

    This store takes the certificates of mirrors from the folder docker.io, and Docker's own store
    from the folder of the mirror.
    """
    for one in registries:
        if one.host == DOCKER_HUB:
            trusts = one.trusts
            client = next((trust for trust in trusts if trust.certificate), Trust())
            blocks = [block for trust in trusts for block in places.pem_blocks(trust.ca)]
            ca = "\n".join(dict.fromkeys(blocks))
            return {DOCKER_HUB: Trust(ca, client.certificate, client.key)}
    return {}


def _pem(text: str) -> str:
    return "\n".join(places.pem_blocks(text)) + "\n"


def _paths(target: Target, host: str, trust: Trust) -> tuple[str, str, str]:
    """Return the paths of CA, certificate and key of a server; empty for those it does not have."""
    ca, certificate, key = places.own_files(own_folder(target, host))
    return ca if trust.ca else "", *((certificate, key) if trust.certificate else ("", ""))


# --- containerd -----------------------------------------------------------------------------------


def _containerd(target: Target, registries: Sequence[Registry]) -> Iterator[Document]:
    for one in registries:
        own = _host_keys(target, one.server, one.trust._replace(username=""))
        if not one.mirrors and not own:
            continue  # its login is in the file of the kubelet
        mirrors, address, top = [*one.mirrors], f"https://{one.server}", own
        if not one.fallback:
            last = mirrors.pop()
            address, top = last.api, _mirror_keys(target, last)
        # containerd 1 throws away a file without a table `host`. So the server is in one, too.
        hosts = {mirror.api: _mirror_keys(target, mirror) for mirror in mirrors} or {address: top}
        yield Document(
            join(target["folders"][one.host], places.HOSTS),
            "toml",
            {
                **({} if one.fallback else {"server": address}),
                **top,
                "host": {
                    host: {"capabilities": _CAPABILITIES, **keys} for host, keys in hosts.items()
                },
            },
            has_secrets=any(mirror.trust.has_login for mirror in one.mirrors),
        )
    yield from _logins(target, [one for one in registries if one.trust.has_login])


def _mirror_keys(target: Target, mirror: Mirror) -> dict[str, object]:
    keys = _host_keys(target, mirror.host, mirror.trust)
    return {**keys, **({"override_path": True} if mirror.path else {})}


def _host_keys(target: Target, host: str, trust: Trust) -> dict[str, object]:
    ca, certificate, key = _paths(target, host, trust)
    keys: dict[str, object] = {}
    if ca:
        keys["ca"] = ca
    if certificate:
        keys["client"] = [[certificate, key]]
    if trust.has_login:
        keys["header"] = {"Authorization": f"Basic {trust.basic}"}
    return keys


# --- Docker ---------------------------------------------------------------------------------------


def _docker(target: Target, registries: Sequence[Registry]) -> Iterator[Document]:
    mirrors = [mirror.url for one in registries for mirror in one.mirrors]
    if mirrors:
        lists = ((("registry-mirrors",), tuple(mirrors)),)
        yield Document(target["daemon_json"], "json", append=lists)
    yield from _logins(target, [one for one in registries if one.trust.has_login])


def _logins(target: Target, registries: Sequence[Registry]) -> Iterator[Document]:
    """Yield files of logins by the name of the registry, as Docker and the kubelet read them."""
    auths = {
        DOCKER_HUB_LOGIN if one.host == DOCKER_HUB else one.host: {"auth": one.trust.basic}
        for one in registries
    }
    if auths:
        for path in target["logins"]:
            yield Document(path, "json", {"auths": auths}, has_secrets=True)


# --- CRI-O ----------------------------------------------------------------------------------------


def _crio(target: Target, registries: Sequence[Registry]) -> Iterator[Document]:
    tables = [_table(one) for one in registries if one.mirrors]
    if tables:
        yield Document(places.CONTAINERS_DROP_IN, "toml", {"registry": tables})
    auths: dict[str, object] = {
        DOCKER_HUB if host == registry_host(registries) else host: {"auth": trust.basic}
        for host, trust in servers(registries).items()
        if trust.has_login
    }
    if auths:
        (path,) = target["logins"]
        yield Document(path, "json", {"auths": auths}, has_secrets=True)
        if path == places.CRIO_LOGIN:
            merge: dict[str, object] = {"crio": {"image": {"global_auth_file": path}}}
            yield Document(places.CRIO_DROP_IN, "toml", merge)


def registry_host(registries: Sequence[Registry]) -> str:
    """Return the server of docker.io, which CRI-O knows by its name."""
    return next((one.server for one in registries if one.host == DOCKER_HUB), "")


def _table(one: Registry) -> dict[str, object]:
    mirrors = [_location(mirror) for mirror in one.mirrors]
    # Without fallback, the last mirror takes the place of the registry.
    place = {"location": one.host} if one.fallback else mirrors.pop()
    return {"prefix": one.host, **place, **({"mirror": mirrors} if mirrors else {})}


def _location(mirror: Mirror) -> dict[str, object]:
    insecure = {"insecure": True} if mirror.scheme == "http" else {}
    return {"location": f"{mirror.host}{mirror.path}", **insecure}


# --- k3s, RKE2 ------------------------------------------------------------------------------------


def _registries_yaml(target: Target, registries: Sequence[Registry]) -> Iterator[Document]:
    lists = tuple(
        (("mirrors", one.host, "endpoint"), tuple(mirror.api for mirror in one.mirrors))
        for one in registries
        if one.mirrors
    )
    configs: dict[str, object] = {}
    for host, trust in servers(registries).items():
        ca, certificate, key = _paths(target, host, trust)
        tls = {"ca_file": ca, "cert_file": certificate, "key_file": key}
        auth = {"username": trust.username, "password": trust.password}
        tables = {
            "tls": {name: value for name, value in tls.items() if value},
            "auth": auth if trust.has_login else {},
        }
        if found := {name: table for name, table in tables.items() if table}:
            configs[host] = found
    if lists or configs:
        yield Document(
            places.REGISTRIES_YAML[target["kind"]],
            "yaml",
            {"configs": configs} if configs else {},
            lists,
            has_secrets=any(trust.has_login for trust in servers(registries).values()),
        )


_DOCUMENTS: Mapping[str, Callable[[Target, Sequence[Registry]], Iterator[Document]]] = {
    "containerd": _containerd,
    "docker": _docker,
    "crio": _crio,
}
