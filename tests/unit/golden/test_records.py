# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the records say about every repository, key, package, version and stream of the plans.

A contradiction fails. What is unproven is listed in docs/support.md, by test_support.py.
"""

from __future__ import annotations

import re

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import known
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import (
    REDHAT,
    SYSTEMS,
    System,
)
from ansible_collections.metal.gpu.tests.unit.golden import render
from ansible_collections.metal.gpu.tests.unit.golden.documents import file_name
from ansible_collections.metal.gpu.tests.unit.golden.judged import (
    CRI_DOCKERD,
    accepted,
    judged,
    key,
    name_of_driver,
)
from ansible_collections.metal.gpu.tests.unit.golden.plans import CONFIRMED, MIRROR, YOURS
from ansible_collections.metal.gpu.tests.unit.support import records
from ansible_collections.metal.gpu.tests.unit.support.records import Item


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
    found |= set(re.findall(r"(?:Suites|Signed-By): (\S+)", text))
    found |= set(" ".join(re.findall(r"Components: (.+)", text)).split())
    found -= {one for one in found if one.startswith("*")}  # a pattern, which names no package
    found -= {CONFIRMED, *(one for one in found if one.startswith((YOURS, MIRROR)))}
    known: set[str] = set()
    sign = "-" if system.family == REDHAT else "="
    for _repository, item, _judgement in judged(system):
        known |= {item.value, f"{item.package}{sign}{item.value}"}
        if item.what == "file":
            (address,) = (row.values[0] for row in records.about(CRI_DOCKERD, "address"))
            known.add(f"{address}{item.value}")
    assert found - known == set()


@pytest.mark.parametrize("system", SYSTEMS, ids=file_name)
def test_known_branches_of_nvidia_are_those_of_the_records(system: System) -> None:
    name, repository = name_of_driver(system), known.repository(system)
    (row,) = records.about(name, "branches")
    assert row.values[0].get("first", 0) == repository.first
    unusable = {one for row in records.about(name, "unusable branch") for one in row.values}
    assert {*repository.seen} == records.branches(name) - unusable
    missing = {str(one) for row in records.about(name, "no branch") for one in row.values}
    assert missing.isdisjoint(map(str, repository.seen))


@pytest.mark.parametrize("system", SYSTEMS, ids=file_name)
def test_known_versions_of_nvidia_are_those_of_the_records(system: System) -> None:
    """A version counts that something else shows, such as the package that pins it."""
    name, epoch = name_of_driver(system), "3:" if system.family == REDHAT else ""
    for version in known.repository(system).seen.values():
        found = records.judge(name, Item("version", f"{epoch}{version}", records.DRIVER))
        assert found.row is not None, version
        assert found.state != records.CONTRADICTED, version


@pytest.mark.parametrize("system", SYSTEMS, ids=file_name)
def test_known_drivers_of_an_archive_are_the_newest_of_the_records(system: System) -> None:
    assert {one.branch: one.version for one in known.archives(system)} == records.newest(
        key(system)
    )


@pytest.mark.parametrize("system", SYSTEMS, ids=file_name)
def test_kernels_with_signed_modules_are_those_of_the_records(system: System) -> None:
    found = [one for row in records.about(key(system), "signed kernels") for one in row.values]
    assert [*known.signed_kernels(system)] == found


@pytest.mark.parametrize("system", SYSTEMS, ids=file_name)
def test_level_of_a_system_without_tests_is_that_of_its_repository(system: System) -> None:
    used = records.judge(name_of_driver(system), Item("used on", key(system)))
    assert used.state != records.CONTRADICTED
    if system.level in records.STATES:
        assert system.level == used.state


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
    pytest.param("debian12", Item("suite", "/"), "recorded", id="suite"),
    pytest.param("debian-13", Item("version", "550.*", "libcuda1"), "recorded", id="archive"),
    pytest.param(
        "debian-12",
        Item("version", "470.*", "nvidia-persistenced"),
        "unproven",
        id="branch of the daemon",
    ),
    pytest.param("debian-13", Item("package", "nvidia-tesla-470-smi"), "contradicted", id="no 470"),
    pytest.param("debian-13", Item("components", "universe"), "contradicted", id="component"),
    pytest.param(
        "debian-12",
        Item("keyring", "/usr/share/keyrings/docker.gpg"),
        "contradicted",
        id="keyring",
    ),
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
