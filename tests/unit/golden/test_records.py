# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the records say about every repository, key, package, version and stream of the plans.

A contradiction fails. What no record confirms is listed in docs/support.md. To write the list anew:
`python -m pytest tests/unit/golden --update-golden`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import pytest

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
from ansible_collections.metal.gpu.tests.unit.golden.test_golden import SUPPORT, file_name
from ansible_collections.metal.gpu.tests.unit.support import records
from ansible_collections.metal.gpu.tests.unit.support.records import Item, Judgement

LIST = re.compile(r"(?<=<!-- begin of unproven -->\n).*(?=<!-- end of unproven -->)", re.DOTALL)
CRI_DOCKERD = "cri-dockerd"


class Judged(NamedTuple):
    """An item of a system's plans, where it is looked for, and what the records say about it."""

    repository: str
    item: Item
    judgement: Judgement


@cache
def judged(system: System) -> tuple[Judged, ...]:
    found: dict[tuple[str, Item], Judged] = {}
    for made in accepted(system):
        for one in (*_of_repository(system, made["data"]), *_of_system(system, made["data"])):
            found[one.repository, one.item] = one
    return tuple(found.values())


def accepted(system: System) -> Iterator[PlanResult]:
    """Yield the plans that are carried out. A mirror of the user can have everything."""
    for _heading, made in sections(system):
        if not made["refusals"] and made["data"]["repository"]["url"] != MIRROR:
            yield made


def key(system: System) -> str:
    """Return the name of a system in the records."""
    return f"{system.id}-{system.version}"


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
    yield from (Judged(name, item, records.judge(name, item)) for item in items if item.value)
    url = data.get("cri_dockerd_url") or YOURS
    if not url.startswith(YOURS):
        for item in (Item("used on", key(system)), Item("file", url.rpartition("/")[2])):
            yield Judged(CRI_DOCKERD, item, records.judge(CRI_DOCKERD, item))
        address = Item("address", f"{url.rpartition('/')[0]}/")
        yield Judged(CRI_DOCKERD, address, records.judge(CRI_DOCKERD, address))


def _versions(data: Mapping[str, Any], family: str) -> Iterator[Item]:
    for argument in (*data["packages"], *(data["hold"] if family == REDHAT else ())):
        name, version = split(argument, family)
        if not _is_of_system(argument, family):
            yield Item("package", name)
            yield Item("version", version, name)


def _of_system(system: System, data: Mapping[str, Any]) -> Iterator[Judged]:
    """Yield the packages of the system's own archive: those without a version, and its tools."""
    own = [render.VERSIONLOCK if system.family == REDHAT else "python3-debian"]
    own += [one for one in data["packages"] if _is_of_system(one, system.family)]
    for name in (*own, *data.get("headers", [])):
        item = Item("package", name)
        yield Judged(key(system), item, records.judge(key(system), item))


def _is_of_system(argument: str, family: str) -> bool:
    return "=" not in argument if family != REDHAT else argument.startswith("kernel-devel")


@pytest.mark.parametrize("system", SYSTEMS, ids=file_name)
def test_no_record_contradicts_a_plan(system: System) -> None:
    against = [
        f"{one.repository}: {one.item}, but {row.values} ({row.source.where})"
        for one in judged(system)
        if one.judgement.state == records.CONTRADICTED and (row := one.judgement.row)
    ]
    assert against == []


@pytest.mark.parametrize("system", SYSTEMS, ids=file_name)
def test_nothing_of_a_golden_text_escapes(system: System) -> None:
    """Every address, key, fingerprint, package and stream of the text is judged."""
    text = "\n".join(render.plan(made, system.family) for made in accepted(system))
    found = set(re.findall(r"https?://\S+", text))
    found |= set(re.findall(r"^ +(?:package|fingerprint) *(.*)$", text, re.MULTILINE))
    found |= set(re.findall(r"^ +(?:apt-mark hold|dnf versionlock) (.*)$", text, re.MULTILINE))
    found |= set(re.findall(r"dnf module enable nvidia-driver:(\S+)", text))
    found |= set(re.findall(r"Suites: (\S+)", text))
    found -= {CONFIRMED, *(one for one in found if one.startswith(YOURS))}
    known: set[str] = set()
    sign = "-" if system.family == REDHAT else "="
    for _repository, item, _judgement in judged(system):
        known |= {item.value, f"{item.package}{sign}{item.value}"}
        if item.what == "file":
            (address,) = (row.values[0] for row in records.about(CRI_DOCKERD, "address"))
            known.add(f"{address}{item.value}")
    assert found - known == set()


def unproven() -> str:
    """Return the rows of docs/support.md about everything that no record confirms."""
    systems: dict[tuple[str, str, str], list[str]] = {}
    for system in SYSTEMS:
        for repository, item, judgement in judged(system):
            if judgement.state == records.UNPROVEN:
                line = (*_words(repository, item), _evidence(judgement))
                systems.setdefault(line, []).append(system.name)
    # Packages of which the same is said share a row.
    names: dict[tuple[str, str, str], list[str]] = {}
    for (name, what, said), where in systems.items():
        names.setdefault((what, ", ".join(where), said), []).append(name)
    rows = [("what", "system", "record"), ("---", "---", "---")]
    rows += [
        (what.format(", ".join(one)), where, said) for (what, where, said), one in names.items()
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _words(repository: str, item: Item) -> tuple[str, str]:
    """Return what is unproven, and the words about it."""
    if item.what == "package":
        return f"`{item.value}`", "name of the package {}"
    if item.what == "version":
        return f"`{item.package}`", f"version `{item.value}` of {{}}"
    addresses = [row.values[0] for row in records.about(repository, "address")]
    where = addresses[0] if addresses else repository
    if item.what == "used on":
        return f"`{where}`", "use of {} on this system"
    if item.what == "signs":
        return f"`{where}`", f"signatures of the {item.value} in {{}}"
    return f"`{where}`", f"{item.what} `{item.value}` of {{}}"


def _evidence(judgement: Judgement) -> str:
    if judgement.row is None:
        return "unproven"
    source = judgement.row.source
    return f"unproven, inferred from: {source.where}, {source.date}"


def test_what_is_unproven_is_documented(is_update: bool) -> None:
    document = SUPPORT.read_text()
    if is_update:
        document = LIST.sub(lambda old: unproven(), document)
        SUPPORT.write_text(document)
    (documented,) = LIST.findall(document)
    assert documented == unproven()


@pytest.mark.parametrize("system", SYSTEMS, ids=file_name)
def test_first_branch_is_that_of_the_records(system: System) -> None:
    (name,) = records.repositories(system.driver.url, system.driver.suite)
    recorded = [row.values[0]["first"] for row in records.about(name, "branches")]
    assert not system.first_branch or recorded == [system.first_branch]


ITEMS = [
    pytest.param("rhel9", Item("package", "docker-ce-cli"), "unproven", id="elsewhere"),
    pytest.param(
        "docker-rhel9",
        Item("version", "3:29.8.1-1.el9", "docker-ce-cli"),
        "contradicted",
        id="epoch",
    ),
    pytest.param(
        "debian13",
        Item("version", "580.178.04-*", "nvidia-driver-cuda"),
        "contradicted",
        id="branch",
    ),
    pytest.param(
        "debian13",
        Item("version", "615.71.09-1", "nvidia-driver-cuda"),
        "contradicted",
        id="revision",
    ),
    pytest.param(
        "ubuntu2404",
        Item("version", "580.105.08-1ubuntu1", "nvidia-utils-580"),
        "contradicted",
        id="revision of a group",
    ),
    pytest.param(
        "docker-noble",
        Item("version", "2.4.1-1~ubuntu.24.04~noble", "containerd.io"),
        "contradicted",
        id="build",
    ),
    pytest.param(
        "cri-dockerd",
        Item("file", "cri-dockerd_0.4.3.3-0.debian-trixie_amd64.deb"),
        "contradicted",
        id="file",
    ),
    pytest.param("rhel10", Item("stream", "580-open"), "contradicted", id="stream"),
    pytest.param("rhel9", Item("no stream", "*"), "contradicted", id="stream forgotten"),
    pytest.param("debian12", Item("used on", "debian-13"), "contradicted", id="system"),
    pytest.param("debian13", Item("fingerprint", "0" * 40), "contradicted", id="fingerprint"),
    pytest.param("rhel10", Item("fingerprint", "0" * 40), "unproven", id="no fingerprint"),
    pytest.param("rhel10", Item("package", "nvidia-persistenced"), "unproven", id="only inferred"),
    pytest.param("debian12", Item("suite", "/"), "confirmed", id="suite"),
    pytest.param(
        "docker-centos9",
        Item("version", "29.9.9-1.el9", "docker-ce"),
        "contradicted",
        id="no epoch",
    ),
]


@pytest.mark.parametrize(("repository", "item", "expected"), ITEMS)
def test_judgements(repository: str, item: Item, expected: str) -> None:
    assert records.judge(repository, item).state == expected


def test_an_address_of_another_system_contradicts() -> None:
    address = "https://developer.download.nvidia.com/compute/cuda/repos/debian14/x86_64/"
    assert records.judge_address("debian-13", address).state == records.CONTRADICTED
    assert records.judge_address("debian-13", "https://x.example/").state == records.UNPROVEN
