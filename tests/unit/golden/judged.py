# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the records say about every repository, key, package, version and stream of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import packages
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.failure import split
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import (
    REDHAT,
    SYSTEMS,
    System,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import PlanResult
from ansible_collections.metal.gpu.tests.unit.golden import render
from ansible_collections.metal.gpu.tests.unit.golden.plans import (
    CONFIRMED,
    MIRROR,
    YOURS,
    sections,
)
from ansible_collections.metal.gpu.tests.unit.support import records
from ansible_collections.metal.gpu.tests.unit.support.records import Item, Judgement

CRI_DOCKERD = "cri-dockerd"


class Judged(NamedTuple):
    """An item of a plan, where it is looked for, and what the records say about it."""

    repository: str
    item: Item
    judgement: Judgement


@cache
def judged(system: System) -> tuple[Judged, ...]:
    """Return everything that a system's plans expect."""
    found: dict[tuple[str, Item], Judged] = {}
    for made in accepted(system):
        for one in of_plan(system, made["data"]):
            found[one.repository, one.item] = one
    return tuple(found.values())


def accepted(system: System) -> Iterator[PlanResult]:
    """Yield the plans that are carried out."""
    for _heading, made in sections(system):
        if not made["refusals"]:
            yield made


def of_plan(system: System, data: Mapping[str, Any]) -> Iterator[Judged]:
    repository = data.get("repository")
    if repository is None or repository["signed_by"] is not None:
        yield from _of_archive(system, data)
    elif repository["url"] == MIRROR:
        yield from _of_mirror(system, data)
    else:
        yield from _of_repository(system, data)
    yield from _of_system(system, data)


def key(system: System) -> str:
    """Return the name of a system, and of its archive, in the records."""
    return f"{system.id}-{system.version}"


def name_of_driver(system: System) -> str:
    """Return the name of NVIDIA's repository for a system in the records."""
    (name,) = records.repositories(system.driver.url, system.driver.suite)
    return name


def _judge(name: str, items: Iterable[Item]) -> Iterator[Judged]:
    yield from (Judged(name, item, records.judge(name, item)) for item in items if item.value)


def _of_repository(system: System, data: Mapping[str, Any]) -> Iterator[Judged]:
    """Yield what a plan expects of its vendor's repository."""
    repository = data["repository"]
    address, suite = repository["url"], repository["suite"]
    names = records.repositories(address, suite)
    if not names:
        judgement = records.judge_address(key(system), address)
        yield Judged(address, Item("address", address), judgement)
        return
    (name,) = names
    items = [
        Item("address", address),
        Item("used on", key(system)),
        Item("key", repository["key"]),
        *_versions(data, system.family),
        *(Item("package", one) for one in data.get("pinning", [])),
    ]
    if suite:
        items += [Item("suite", suite), Item("components", repository["components"])]
    else:
        items.append(Item("signs", repository["signs"]))
    if repository["fingerprint"] != CONFIRMED:
        items.append(Item("fingerprint", repository["fingerprint"]))
    if "stream" in data and system.family == REDHAT:
        stream = data["stream"]
        items.append(Item("stream", stream) if stream else Item("no stream", "*"))
    yield from _judge(name, items)
    url = data.get("cri_dockerd_url") or YOURS
    if not url.startswith(YOURS):
        address = Item("address", f"{url.rpartition('/')[0]}/")
        file = Item("file", url.rpartition("/")[2])
        yield from _judge(CRI_DOCKERD, [Item("used on", key(system)), file, address])


def _of_mirror(system: System, data: Mapping[str, Any]) -> Iterator[Judged]:
    """Yield what a plan expects of a mirror: it can have what any repository of NVIDIA's for the
    distribution has, and NVIDIA's key for the system.
    """
    distribution = [one for one in SYSTEMS if one.id == system.id]
    names = [name_of_driver(one) for one in distribution]
    pinning = (Item("package", one) for one in data["pinning"])
    for item in (*_versions(data, system.family), *pinning):
        found = [records.judge(name, item) for name in names]
        yield Judged(MIRROR, item, min(found, key=lambda one: records.STATES.index(one.state)))
    fingerprint = Item("fingerprint", data["repository"]["fingerprint"])
    yield from _judge(name_of_driver(system), [fingerprint])


def _of_archive(system: System, data: Mapping[str, Any]) -> Iterator[Judged]:
    """Yield what a plan expects of the distribution's own archive."""
    items = [*_versions(data, system.family)]
    for argument in data.get("following", [])[:1]:  # the others are the same package
        items += [] if _is_of_system(argument, system.family) else _names(argument, system.family)
    yield from _judge(key(system), items)
    for name, about in ((key(system), "repository"), (f"{key(system)}-security", "security")):
        if repository := data.get(about):
            yield from _judge(name, _of_source(repository))


def _of_source(repository: Mapping[str, Any]) -> Iterator[Item]:
    yield Item("address", repository["url"])
    yield Item("suite", repository["suite"])
    yield from (Item("components", one) for one in repository["components"].split())
    yield Item("keyring", repository["signed_by"])


def _versions(data: Mapping[str, Any], family: str) -> Iterator[Item]:
    for argument in (*data["packages"], *(data["hold"] if family == REDHAT else ())):
        if not _is_of_system(argument, family):
            yield from _names(argument, family)


def _of_system(system: System, data: Mapping[str, Any]) -> Iterator[Judged]:
    """Yield the packages of the system's own archive that every source of a driver needs."""
    own = [render.VERSIONLOCK if system.family == REDHAT else "python3-debian"]
    names = [*data["packages"], *data.get("following", [])[:1]]
    own += [one for one in names if _is_of_system(one, system.family)]
    for argument in (*own, *data.get("headers", [])):
        if system.family == REDHAT:
            yield from _judge(key(system), [Item("package", argument)])
        else:
            yield from _judge(key(system), _names(argument, system.family))


def _names(argument: str, family: str) -> Iterator[Item]:
    name, version = split(argument, family)
    yield Item("package", name)
    yield Item("version", version, name)


def _is_of_system(argument: str, family: str) -> bool:
    if family == REDHAT:
        return argument.startswith("kernel-devel")
    return argument.startswith("linux-headers-") or argument in packages.COMPILERS
