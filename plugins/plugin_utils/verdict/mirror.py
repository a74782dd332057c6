# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What will the hosts of an inventory fetch? No function does I/O.

The plans of the roles say it: their steps are what a run would carry out. A host that has
everything fetches nothing. Images are those that the variables name.

A mirror has each address below its host and its path, as apt-mirror does it. So what a variable has
to be follows from the address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import cuda_images
from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.dnf import VERSIONLOCK
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import REDHAT

Key = TypeVar("Key")

ENGINE = "metal_gpu_engine"
_RUNFILE, _CRI_DOCKERD = "nvidia_driver_runfile_url", "docker_ce_cri_dockerd_url"
_CHECKSUM = "docker_ce_cri_dockerd_checksum"
_SHA256 = re.compile(r"sha256:([0-9a-f]{64})")
# Other addresses, such as file:///opt/driver.run, are places on the node itself.
_FETCHED = ("http://", "https://")
# Steps that need the repository of a role.
_OF_REPOSITORY = {"repository", "install", "fabric_packages"}

_PLUGIN, _COMPUTE = "device_plugin_image", "verify_compute_image"
_LEVEL, _DOCKER = "verify_level", "verify_docker_image"
_OF_LEVEL = {"list": "verify_smoke_image", "exchange": "verify_exchange_image"}
# The variables that decide about images.
_IMAGES = (_PLUGIN, "device_plugin_version", _COMPUTE, _LEVEL, _DOCKER, *_OF_LEVEL.values())
# All that `Host` needs.
VARIABLES = (
    ENGINE,
    *(_RUNFILE, "nvidia_driver_runfile_sha256"),
    *(_CRI_DOCKERD, _CHECKSUM),
    *_IMAGES,
)


class Host(NamedTuple):
    """A host with the plans of its roles, and what variables say."""

    name: str
    family: str  # of distributions
    plans: Mapping[str, Mapping[str, Any]]
    values: Mapping[str, str]  # of variables that name files, and their checksums
    images: Mapping[str, str]  # by the variable that names them


class Repository(NamedTuple):
    """A repository that a role adds."""

    url: str
    suite: str  # "/" for a flat one; empty for dnf
    components: str


class File(NamedTuple):
    """A file of an address, with what confirms it."""

    url: str
    sha256: str = ""
    fingerprint: str = ""  # of a key


class Listing(NamedTuple):
    """What all hosts fetch, each thing once, with the hosts that do."""

    repositories: Mapping[Repository, Mapping[str, Sequence[str]]]  # hosts by package
    archive: Mapping[str, Sequence[str]]  # packages of the system's own sources
    files: Mapping[File, Sequence[str]]
    images: Mapping[str, Sequence[str]]
    variables: Mapping[str, Mapping[str, str]]  # by host, for an inventory that uses the mirror


def collect(hosts: Iterable[Host], mirror: str, registry: str) -> Listing:
    """Return what the hosts fetch. `mirror` is the address under which they will find it."""
    repositories: dict[Repository, dict[str, list[str]]] = {}
    archive: dict[str, list[str]] = {}
    files: dict[File, list[str]] = {}
    images: dict[str, list[str]] = {}
    variables: dict[str, dict[str, str]] = {}
    shared: dict[str, set[str]] = {}
    for host in hosts:
        own = variables.setdefault(host.name, {})
        for role, plan in host.plans.items():
            source = _source(plan)
            if source is not None:
                own[f"{role}_repository_url"] = _at(mirror, source.url)
            place = archive if source is None else repositories.setdefault(source, {})
            for name in _packages(plan):
                _note(place, name, host)
            for name in _of_archive(plan, host.family):
                _note(archive, name, host)
            for variable, file in _files(role, plan, host.values):
                _note(files, file, host)
                prefix = "sha256:" if variable == _CHECKSUM else ""
                own[variable] = f"{prefix}{_at(mirror, file.url)}"
        for variable, image in host.images.items():
            _note(images, image, host)
            name = f"{registry}/{place_of_image(image)}"
            if variable == _PLUGIN and host.values.get(_PLUGIN) != image:
                name = name.rpartition(":")[0]  # its tag is another variable
            shared.setdefault(variable, set()).add(name)
    # One host asks the cluster for all of them, so their images must be the same. Variables of
    # hosts win over those of any group.
    same = {name: min(values) for name, values in shared.items() if len(values) == 1}
    variables = {name: {**own, **same} for name, own in variables.items()}
    return Listing(
        repositories,
        archive,
        files,
        images,
        {name: values for name, values in variables.items() if values},
    )


def _note(found: dict[Key, list[str]], key: Key, host: Host) -> None:
    """Several roles of a host may fetch the same."""
    hosts = found.setdefault(key, [])
    if host.name not in hosts[-1:]:
        hosts.append(host.name)


def refusals(host: str, node: Node, desired: str) -> list[dict[str, str]]:
    """Return why nobody knows what a host will fetch, whatever the plans are.

    Without a kubelet, only the inventory tells a Docker host from a node whose kubelet is still to
    come: `docker_hosts` uses Docker, and `site` the engine that the kubelet will use.
    """
    is_told = desired not in ("", engines.AUTO) or node["engines"]["docker"]["installed"]
    return [] if is_told or node["kubelet"]["installed"] else [finding("KUBELET_MISSING", host)]


def images(values: Mapping[str, str], node: Node, engine: str | None) -> dict[str, str]:
    """Return the images that a run pulls on a host, with Kubernetes or without, by variable."""
    if not node["kubelet"]["installed"] and engine == engines.DOCKER:
        return {_DOCKER: values[_DOCKER]}
    plugin, level = values[_PLUGIN], values[_LEVEL]
    tagged = plugin if is_tagged(plugin) else f"{plugin}:{values['device_plugin_version']}"
    found = {_PLUGIN: tagged}
    if level != "list":
        driver = node["nvml"]["driver_version"] or node["driver"]["module_version"]
        chosen = cuda_images.choose(driver, (gpu["device"] for gpu in node["pci"]))
        # A driver that is still to be installed is a new one.
        found[_COMPUTE] = values[_COMPUTE] or chosen or cuda_images.IMAGES[0].name
    if level in _OF_LEVEL:
        found[_OF_LEVEL[level]] = values[_OF_LEVEL[level]]
    return found


def is_tagged(image: str) -> bool:
    return "@" in image or ":" in image.rpartition("/")[2]


def describe(listing: Listing) -> dict[str, Any]:
    """Return the list as data, for a file. Addresses have no credentials."""
    return {
        "repositories": [
            {
                "url": redact(one.url),
                **({"suite": one.suite} if one.suite else {}),
                **({"components": one.components} if one.components else {}),
                "packages": dict(sorted(packages.items())),
            }
            for one, packages in listing.repositories.items()
        ],
        "system": dict(sorted(listing.archive.items())),
        "files": [
            {
                "url": redact(one.url),
                **({"sha256": one.sha256} if one.sha256 else {}),
                **({"fingerprint": one.fingerprint} if one.fingerprint else {}),
                "hosts": hosts,
            }
            for one, hosts in listing.files.items()
        ],
        "images": dict(listing.images),
        "variables": {name: dict(values) for name, values in listing.variables.items()},
    }


def full_name(name: str) -> str:
    """Return the name of an image with its registry."""
    host, slash, _rest = name.partition("/")
    named = slash and ("." in host or ":" in host or host == "localhost")
    return name if named else f"docker.io/{name if slash else f'library/{name}'}"


def place_of_image(name: str) -> str:
    """Return the name of an image below another registry, which may have no port in its path."""
    host, slash, rest = full_name(name).partition("/")
    return f"{host.partition(':')[0]}{slash}{rest}"


def place_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname or ''}{parts.path}"


def _at(mirror: str, url: str) -> str:
    return f"{mirror.rstrip('/')}/{place_of(url)}"


def _slugs(plan: Mapping[str, Any]) -> set[str]:
    return {step["slug"] for step in plan["steps"]}


def _source(plan: Mapping[str, Any]) -> Repository | None:
    """Return the repository from which the plan installs; None: the system's own sources."""
    found = plan["data"].get("repository") or {}
    # What is signed as the admin's own source of the same archive is that archive.
    if not found.get("url") or found.get("signed_by") or not _slugs(plan) & _OF_REPOSITORY:
        return None
    return Repository(found["url"], found["suite"], found["components"])


def _packages(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the packages that are the role's own, with their versions."""
    data, slugs = plan["data"], _slugs(plan)
    own = (data.get("packages_record") or {}).get("packages", {})
    if "install" in slugs:
        yield from (one for one in data.get("packages", ()) if _is_of(one, own))
    if "fabric_packages" in slugs:
        yield from data.get("fabric_packages", ())


def _of_archive(plan: Mapping[str, Any], family: str) -> Iterator[str]:
    """Yield the packages that come from the system's own sources, such as headers."""
    data, slugs = plan["data"], _slugs(plan)
    own = (data.get("packages_record") or {}).get("packages", {})
    if family == REDHAT and "hold" in slugs:
        yield VERSIONLOCK  # the first hold installs it
    if "python_debian" in slugs:
        yield "python3-debian"
    if "install" in slugs:
        yield from (one for one in data.get("packages", ()) if not _is_of(one, own))
    if "headers" in slugs:
        yield from data.get("headers", ())


def _is_of(argument: str, names: Iterable[str]) -> bool:
    """Tell whether an argument of apt or dnf is one of these packages, in whichever version."""
    return any(argument == name or argument.startswith((f"{name}=", f"{name}-")) for name in names)


def _files(
    role: str, plan: Mapping[str, Any], values: Mapping[str, str]
) -> Iterator[tuple[str, File]]:
    """Yield files, each with the variable that has its address."""
    slugs, data = _slugs(plan), plan["data"]
    found = data.get("repository") or {}
    key = found.get("key", "")
    if "repository" in slugs and key.startswith(_FETCHED) and not found.get("signed_by"):
        yield f"{role}_repository_key", File(key, fingerprint=found["fingerprint"])
    if "runfile" in slugs and values.get(_RUNFILE, "").startswith(_FETCHED):
        yield _RUNFILE, File(values[_RUNFILE], values.get("nvidia_driver_runfile_sha256", ""))
    if "cri_dockerd" in slugs and data.get("cri_dockerd_url"):
        checksum = values.get(_CHECKSUM, "")
        known = _SHA256.fullmatch(checksum)
        yield _CRI_DOCKERD, File(data["cri_dockerd_url"], known[1] if known else "")
        # Instead of the checksum, it can have the address of a list of checksums.
        address = checksum.removeprefix("sha256:")
        if address.startswith(_FETCHED):
            yield _CHECKSUM, File(address)
