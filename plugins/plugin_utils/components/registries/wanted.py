# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does the variable registries_hosts ask for?

Messages about the variable never quote a value of it: any of them can be a secret.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from ansible_collections.metal.gpu.plugins.module_utils.read.registries import pem_kinds

ALL = "*"  # every registry that has no entry of its own
DOCKER_HUB = "docker.io"
# The host that answers for the name docker.io.
DOCKER_HUB_HOST = "registry-1.docker.io"

_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)(?:\.[a-z0-9-]+)*(?::[0-9]{1,5})?")
_LOGIN = ("ca", "client_certificate", "client_key", "username", "password")
_KEYS_OF_HOST = {"host", "mirrors", "fallback", *_LOGIN}
_KEYS_OF_MIRROR = {"url", *_LOGIN}
_PAIRS = (("client_certificate", "client_key"), ("username", "password"))


class Trust(NamedTuple):
    """How to talk to a server. Empty texts are not set."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    username: str = ""
    password: str = ""

    @property
    def has_login(self) -> bool:
        return bool(self.username)

    @property
    def has_files(self) -> bool:
        return bool(self.ca or self.certificate)

    @property
    def basic(self) -> str:
        """The login as HTTP and as Docker's config.json have it."""
        return base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


class Mirror(NamedTuple):
    """A server that has images of a registry."""

    scheme: str
    host: str  # with the port
    path: str  # before the names of repositories; empty or with a slash at its start
    trust: Trust
    is_bare: bool = False  # the variable has all of its trust where the host also occurs

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}{self.path}"

    @property
    def api(self) -> str:
        """The address for containerd, where a path has to be that of the API."""
        return f"{self.scheme}://{self.host}" + (f"/v2{self.path}" if self.path else "")


class Registry(NamedTuple):
    """A registry by its name in references of images."""

    host: str
    mirrors: tuple[Mirror, ...]
    fallback: bool
    trust: Trust

    @property
    def server(self) -> str:
        """The host that answers for the name."""
        return DOCKER_HUB_HOST if self.host == DOCKER_HUB else self.host

    @property
    def trusts(self) -> list[Trust]:
        """How to talk to the registry, and to its mirrors."""
        return [self.trust, *(mirror.trust for mirror in self.mirrors)]


class Problem(NamedTuple):
    """What is wrong with the variable: where, and what is expected."""

    found: str
    expected: str


class Wanted(NamedTuple):
    """The registries, or what is wrong with the variable."""

    registries: tuple[Registry, ...]
    problems: tuple[Problem, ...]


def read(value: Sequence[object]) -> Wanted:
    """Read the value of registries_hosts. It has registries only without problems."""
    problems = list(_problems(value))
    if problems:
        return Wanted((), tuple(problems))
    found = tuple(_registry(one) for one in value if isinstance(one, Mapping))
    known = servers(found)
    return Wanted(tuple(_complete(one, known) for one in found), tuple(_contradictions(found)))


def servers(registries: Sequence[Registry]) -> dict[str, Trust]:
    """Return how to talk to each server, by its host; registries and mirrors alike."""
    found: dict[str, Trust] = {}
    for one in registries:
        for host, trust in ((one.server, one.trust), *((m.host, m.trust) for m in one.mirrors)):
            if host != ALL and (trust != Trust() or host not in found):
                found[host] = trust
    return found


def _complete(one: Registry, known: Mapping[str, Trust]) -> Registry:
    """Return the registry with what the variable says of its hosts elsewhere.

    Some engines have certificates and logins by host, so no engine makes a difference.
    """
    mirrors = (
        mirror._replace(trust=known[mirror.host], is_bare=mirror.trust == Trust())
        for mirror in one.mirrors
    )
    return one._replace(mirrors=tuple(mirrors), trust=known.get(one.server, one.trust))


def _registry(entry: Mapping[str, object]) -> Registry:
    mirrors = cast("Sequence[Mapping[str, object]]", entry.get("mirrors") or ())
    return Registry(
        str(entry["host"]),
        tuple(_mirror(one) for one in mirrors),
        entry.get("fallback") is not False,
        _trust(entry),
    )


def _mirror(entry: Mapping[str, object]) -> Mirror:
    address = urlsplit(str(entry["url"]))
    path = address.path.rstrip("/")
    # The prefix of the API is no part of names.
    path = path.removeprefix("/v2") if path == "/v2" or path.startswith("/v2/") else path
    return Mirror(address.scheme, address.netloc.lower(), path, _trust(entry))


def _trust(entry: Mapping[str, object]) -> Trust:
    return Trust(*(str(entry.get(name) or "") for name in _LOGIN))


def _problems(value: Sequence[object]) -> Iterator[Problem]:
    seen: set[str] = set()
    for number, entry in enumerate(value, 1):
        place = f"its item {number}"
        if not isinstance(entry, Mapping):
            yield Problem(f"{place} is no mapping", "a mapping with the key host")
            continue
        host = entry.get("host")
        if not isinstance(host, str) or (host != ALL and not _HOST.fullmatch(host)):
            expected = "a name as in references of images, such as nvcr.io, or '*'"
            yield Problem(f"{place} has no valid host", expected)
        else:
            place = f"its item for {host}"
            if host in seen:
                yield Problem(f"{place} is there twice", "one item for each host")
            seen.add(host)
        yield from _unknown(place, entry, _KEYS_OF_HOST)
        yield from _wrong_trust(place, entry)
        if host == ALL and any(entry.get(name) for name in _LOGIN):
            yield Problem(f"{place} has a login or a certificate", "these for a host or a mirror")
        if not isinstance(entry.get("fallback", True), bool):
            yield Problem(f"{place} has a fallback that is no truth value", "true or false")
        yield from _wrong_mirrors(place, entry)


def _wrong_mirrors(place: str, entry: Mapping[str, object]) -> Iterator[Problem]:
    mirrors = entry.get("mirrors") or []
    if not isinstance(mirrors, (list, tuple)):
        yield Problem(f"{place} has mirrors that are no list", "a list of mappings")
        return
    if not mirrors and entry.get("fallback") is False:
        yield Problem(f"{place} has fallback: false and no mirrors", "a mirror to ask")
    if not mirrors and entry.get("host") == ALL:
        yield Problem(f"{place} has no mirrors", "at least one")
    for number, mirror in enumerate(mirrors, 1):
        where = f"mirror {number} of {place}"
        if not isinstance(mirror, Mapping):
            yield Problem(f"{where} is no mapping", "a mapping with the key url")
            continue
        yield from _unknown(where, mirror, _KEYS_OF_MIRROR)
        yield from _wrong_trust(where, mirror)
        if not _is_address(mirror.get("url")):
            expected = "http:// or https:// with a host, and no login, query or fragment"
            yield Problem(f"{where} has no valid url", expected)
        elif urlsplit(str(mirror["url"])).scheme == "http" and any(map(mirror.get, _LOGIN)):
            expected = "https://, because a login over http:// can be read on its way"
            yield Problem(f"{where} has a login or a certificate and http://", expected)


def _is_address(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        address = urlsplit(value)
        port = address.port
    except ValueError:
        return False
    is_bare = not (address.query or address.fragment or "@" in address.netloc)
    is_http = address.scheme in ("http", "https") and port != 0
    return is_http and is_bare and bool(_HOST.fullmatch(address.netloc.lower()))


def _unknown(place: str, entry: Mapping[str, object], known: set[str]) -> Iterator[Problem]:
    if unknown := sorted(str(key) for key in entry if key not in known):
        yield Problem(f"{place} has the keys {', '.join(unknown)}", ", ".join(sorted(known)))


def _wrong_trust(place: str, entry: Mapping[str, object]) -> Iterator[Problem]:
    for name in _LOGIN:
        if not isinstance(entry.get(name) or "", str):
            yield Problem(f"{place} has a {name} that is no text", "text in quotes")
            return
    for one, other in _PAIRS:
        if bool(entry.get(one)) != bool(entry.get(other)):
            yield Problem(f"{place} has only one of {one} and {other}", "both or none")
    if ":" in str(entry.get("username") or ""):
        yield Problem(f"{place} has a username with a colon", "a username without one")
    for name, kind in (("ca", "CERTIFICATE"), ("client_certificate", "CERTIFICATE")):
        text = str(entry.get(name) or "")
        kinds = set(pem_kinds(text))
        if text and (kind not in kinds or kinds != {kind}):
            yield Problem(f"{place} has a {name} that is no PEM text", "its content, not its path")
    key = str(entry.get("client_key") or "")
    if "ENCRYPTED" in key:  # also in a line of the older form
        yield Problem(f"{place} has a client_key with a passphrase", "a key without one")
    elif key and not any(kind.endswith("PRIVATE KEY") for kind in pem_kinds(key)):
        yield Problem(f"{place} has a client_key that is no PEM text", "its content, not its path")


def _contradictions(registries: Sequence[Registry]) -> Iterator[Problem]:
    """Yield servers with two CAs or two logins: engines know them by their host."""
    found: dict[str, Trust] = {}
    known = servers(registries)
    for mirror in (mirror for one in registries for mirror in one.mirrors):
        if mirror.scheme == "http" and mirror.trust == Trust() != known[mirror.host]:
            expected = "https:// wherever the host occurs, because a login over http:// can be read"
            yield Problem(f"{mirror.host} has a login or a certificate, and http://", expected)
    for one in registries:
        pairs = [(one.server, one.trust), *((mirror.host, mirror.trust) for mirror in one.mirrors)]
        for host, trust in pairs:
            if trust != Trust() and found.setdefault(host, trust) != trust:
                expected = "the same wherever the host occurs"
                yield Problem(f"{host} has two logins or certificates", expected)
