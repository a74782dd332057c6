# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.sources import (
    OFFERS,
    POLICY,
    competing,
    of_apt,
    of_dnf,
    parse_offers,
    parse_policy,
    parse_transaction,
)
from ansible_collections.metal.gpu.tests.unit.support.recordings import parse_scene, recording

SCENES = parse_scene(recording("packages/apt-policy.txt"))
OURS, CUDA = "http://mirror.example/toolkit", "http://mirror.example/cuda"
BOTH = [f"{OURS} ./", f"{CUDA} ./"]


def test_table_of_sources() -> None:
    assert parse_policy(SCENES["policy"]) == {
        "foo": {"1.0-1": BOTH},
        "bar": {"2.0": BOTH, "1.0": BOTH},
        "less": {"590-2.1~deb12u2": []},
    }


def test_suite_of_nvidias_repositories_is_empty() -> None:
    """apt prints nothing for the suite "/". Seen with apt 2.6.1, 2026-11-23."""
    policy = SCENES["policy"].replace(" ./ Packages", "  Packages")
    assert parse_policy(policy)["foo"] == {"1.0-1": [OURS, CUDA]}
    assert of_apt("gpu-1", ["foo"], OURS, policy, SCENES["simulated"])


@pytest.mark.parametrize("url", [OURS, f"{OURS}/", f"{CUDA}/"])
def test_winner_of_two_sources_is_named_once(url: str) -> None:
    (found,) = of_apt("gpu-1", ["foo", "bar", "less"], url, SCENES["policy"], SCENES["simulated"])
    assert found["code"] == "PACKAGE_SOURCES"
    assert found["message"] == (
        f"gpu-1: several sources have foo, bar: {OURS} ./, {CUDA} ./; apt takes {OURS} ./"
    )


@pytest.mark.parametrize(
    ("url", "policy", "simulated"),
    [
        pytest.param("http://other.example/", SCENES["policy"], SCENES["simulated"], id="others"),
        pytest.param(OURS, SCENES["policy"].replace(CUDA, OURS), SCENES["simulated"], id="one"),
        pytest.param(OURS, SCENES["policy"], "", id="nothing is installed"),
        pytest.param(OURS, "", SCENES["simulated"], id="not asked"),
    ],
)
def test_nothing_competes(url: str, policy: str, simulated: str) -> None:
    assert of_apt("gpu-1", ["foo", "bar", "less"], url, policy, simulated) == []


def test_source_of_the_desired_version_wins() -> None:
    foo, bar, rest = SCENES["policy"].partition("bar:")
    policy = foo + bar + rest.replace(f"        500 {OURS} ./ Packages\n", "", 1)  # of 2.0
    winners = [
        of_apt("gpu-1", ["bar"], OURS, policy, f"Inst bar [0.9] ({version} 127.0.0.1 [all])")
        for version in ("2.0", "1.0")
    ]
    words = [one["message"].rpartition("apt takes ")[2] for (one,) in winners]
    assert words == [f"{CUDA} ./", f"{OURS} ./"]


def test_any_two_sources_compete_without_a_repository_of_ours() -> None:
    simulated = SCENES["simulated"]
    (found,) = of_apt("gpu-1", ["foo", "bar", "less"], None, SCENES["policy"], simulated)
    assert f"several sources have foo, bar: {OURS} ./, {CUDA} ./;" in found["message"]
    alone = SCENES["policy"].replace(CUDA, OURS)
    assert of_apt("gpu-1", ["foo", "bar"], None, alone, simulated) == []


DNF = parse_scene(recording("packages/dnf-sources.txt"))


def test_offers_of_dnf() -> None:
    assert parse_offers(DNF["offers"]) == {
        "kmod-nvidia-open-dkms": ["nv"],
        "libnvidia-container1": ["site-a", "site-b"],
        "nvidia-container-toolkit": ["site-a", "site-b"],
    }


def test_transaction_of_dnf() -> None:
    assert parse_transaction(DNF["transaction"]) == dict.fromkeys(
        (
            *("nvidia-container-toolkit", "nvidia-container-toolkit-base"),
            *("libnvidia-container-tools", "libnvidia-container1"),
        ),
        "site-b",
    )


def test_row_that_is_too_long_goes_on_in_the_next_line() -> None:
    scene = parse_scene(recording("packages/dnf-install-removes.txt"))["allowerasing-stdout"]
    wrapped = scene.replace("Removing dependent packages:", "Installing dependencies:")
    assert parse_transaction(scene) == {"kmod-nvidia-open-dkms": "metal-gpu-nvidia-driver"}
    assert parse_transaction(wrapped)["kmod-nvidia-latest-dkms"] == "@metal-gpu-nvidia-driver"


def test_winner_of_dnf_is_named() -> None:
    names = ["nvidia-container-toolkit", "libnvidia-container1", "kmod-nvidia-open-dkms"]
    (found,) = of_dnf("gpu-1", names, DNF["offers"], DNF["transaction"])
    assert found["message"] == (
        "gpu-1: several sources have nvidia-container-toolkit, libnvidia-container1: "
        "site-a, site-b; dnf takes site-b"
    )
    assert of_dnf("gpu-1", names, DNF["offers"], "") == []
    assert of_dnf("gpu-1", names, "", DNF["transaction"]) == []


@pytest.mark.parametrize("family", ["debian", "redhat"])
def test_answers_are_those_of_the_package_manager(family: str) -> None:
    names = ["nvidia-container-toolkit", "foo"]
    answers = {OFFERS: DNF["offers"], POLICY: SCENES["policy"]}
    simulated = {"debian": SCENES["simulated"], "redhat": DNF["transaction"]}[family]
    (found,) = competing("gpu-1", family, names, OURS, answers, simulated)
    manager = {"debian": "apt", "redhat": "dnf"}[family]
    assert f"; {manager} takes " in found["message"]
