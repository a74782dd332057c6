# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read.cuda_images import IMAGES
from ansible_collections.metal.gpu.plugins.module_utils.read.image_needs import (
    Gpu,
    Image,
    Machine,
    covers,
    is_same,
    meets,
    misfits,
)

FACTS = yaml.safe_load((Path(__file__).parents[4] / "recorded/image_needs.yml").read_text())
T4, A100, P100 = (
    Gpu("Tesla T4", "Turing", "7.5"),
    Gpu("A100", "Ampere", "8.0"),
    Gpu("P100", "Pascal", "6.0"),
)
KEPLER = Gpu("K80", "Kepler", "3.7")
NEW, OLD = Machine("x86_64", "580.178.04", "13.0", (A100,)), Machine("x86_64", "535.1", "12.2")
CUDA_12_8 = {"NVIDIA_REQUIRE_CUDA": "cuda>=12.8", "CUDA_VERSION": "12.8.1"}


def image(architecture: str = "amd64", name: str = "app:1", **environment: str) -> Image:
    return Image(name, architecture, environment=environment)


@pytest.mark.parametrize("row", FACTS["examples"], ids=str)
def test_requirements_are_read_as_recorded(row: dict[str, Any]) -> None:
    facts = row["machine"]
    gpus = (Gpu("", "", facts["capability"]),) if "capability" in facts else ()
    machine = Machine(
        "x86_64", facts.get("driver"), facts.get("cuda"), gpus, facts.get("brand", "")
    )
    assert meets(row["requirement"], machine) is row["meets"]


@pytest.mark.parametrize("brand", FACTS["requirements"]["brands"]["value"])
def test_brands_of_images_are_those_of_nvidia_smi(brand: str) -> None:
    assert meets(f"brand={brand}", Machine("x86_64", brand=brand.title())) is True
    assert meets(f"brand={brand}", Machine("x86_64", brand="Another One")) is False


@pytest.mark.parametrize("row", FACTS["code"]["examples"], ids=str)
def test_code_runs_on_gpus_as_recorded(row: dict[str, Any]) -> None:
    assert covers(row["code"], row["gpu"]) is row["runs"]


@pytest.mark.parametrize(
    ("found", "machine", "capabilities", "expected"),
    [
        pytest.param(image(), NEW, (), {}, id="an image that says nothing"),
        pytest.param(image(**CUDA_12_8), NEW, (), {}, id="a newer driver"),
        pytest.param(
            image("arm64"), NEW, (), {"IMAGE_PLATFORM_MISSING": "arm64"}, id="architecture"
        ),
        pytest.param(
            image("amd64"), NEW._replace(architecture="aarch64"), (),
            {"IMAGE_PLATFORM_MISSING": "amd64"}, id="a host for another architecture",
        ),
        pytest.param(
            image(**CUDA_12_8), OLD, (), {"IMAGE_NEEDS_DRIVER": "`cuda>=12.8`"},
            id="NVIDIA_REQUIRE_CUDA",
        ),
        pytest.param(
            image(**CUDA_12_8, NVIDIA_DISABLE_REQUIRE="true"), OLD, (), {}, id="told not to compare"
        ),
        pytest.param(
            image(**CUDA_12_8), OLD._replace(compares=False), (), {},
            id="the same major version of CUDA, and nobody compares",
        ),
        pytest.param(
            image(NVIDIA_REQUIRE_CUDA="cuda>=13.0"), OLD._replace(compares=False), (),
            {"IMAGE_NEEDS_DRIVER": "a driver for CUDA 13.0"}, id="an older major version",
        ),
        *(
            pytest.param(
                image(CUDA_VERSION="13.0.2", NVIDIA_REQUIRE_CUDA="cuda>=9.0"),
                OLD._replace(compares=compares), (), {}, id=f"it brings cuda-compat, {compares}",
            )
            for compares in (True, False)
        ),
        pytest.param(
            image(CUDA_VERSION="13.0.2", NVIDIA_DISABLE_REQUIRE="1"), OLD, (), {},
            id="told not to compare with its version of CUDA",
        ),
        pytest.param(
            image(CUDA_VERSION="13.0.2"), OLD._replace(compares=False), (),
            {"IMAGE_NEEDS_DRIVER": "a driver for CUDA 13.0"}, id="its version of CUDA",
        ),
        pytest.param(
            image(CUDA_VERSION="12.5.1"), OLD, (), {"IMAGE_NEEDS_DRIVER": "`cuda>=12.5`"},
            id="an image without the variable",
        ),
        pytest.param(
            image(NVIDIA_REQUIRE_CUDA="cuda>=9.0", NVIDIA_REQUIRE_DRIVER="driver>=550"), OLD, (),
            {"IMAGE_NEEDS_DRIVER": "`driver>=550`"}, id="another variable",
        ),
        pytest.param(
            image(NVIDIA_REQUIRE_JETPACK="cuda>=99"), OLD, (), {}, id="a variable of Tegra"
        ),
        pytest.param(
            image(name=f"mirror/{IMAGES[0].name}"), OLD, (),
            {"IMAGE_NEEDS_DRIVER": "driver 555.42.02 or newer"}, id="a known image",
        ),
        pytest.param(
            image(name=IMAGES[0].name), NEW._replace(gpus=(KEPLER,)), (),
            {"IMAGE_NEEDS_GPU": "it has no code for K80 (Kepler)"}, id="a known image, an old GPU",
        ),
        pytest.param(
            image(), NEW._replace(gpus=(T4, P100, P100)), ("7.0", "8.0+PTX"),
            {"IMAGE_NEEDS_GPU": "it has code for 7.0, 8.0+PTX, and P100 has 6.0"},
            id="code that the admin names",
        ),
        pytest.param(
            image(), NEW._replace(gpus=(P100._replace(capability=None),)), ("7.0",), {},
            id="nobody knows what the GPU has",
        ),
        pytest.param(
            image(NVIDIA_REQUIRE_ARCH="arch>=7.0"), NEW._replace(gpus=(P100,)), (),
            {"IMAGE_NEEDS_GPU": "`arch>=7.0`, and P100 has 6.0"}, id="arch",
        ),
        pytest.param(
            image(**CUDA_12_8), OLD._replace(gpus=(P100,)), ("7.0",),
            {"IMAGE_NEEDS_DRIVER": "`cuda>=12.8`", "IMAGE_NEEDS_GPU": "it has code for 7.0"},
            id="driver and GPU",
        ),
        pytest.param(
            image(**CUDA_12_8), Machine("x86_64"), (), {}, id="a host whose driver does not answer"
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named_before_it_is_started(
    found: Image, machine: Machine, capabilities: tuple[str, ...], expected: dict[str, str]
) -> None:
    named = misfits(found, machine, capabilities)
    assert [one.code for one in named] == [*expected]
    for one in named:
        assert expected[one.code] in " ".join(one.evidence.values())


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((["a/x@sha256:1"], ["l"]), (["b/x@sha256:1"], []), True),  # through a mirror
        ((["x@sha256:1"], ["l"]), (["x@sha256:2"], ["m"]), False),
        ((["x@sha256:1"], ["l"]), (["x@sha256:2"], ["l"]), False),  # built again with other ENV
        ((["x@sha256:1", "y@sha256:2"], []), (["x@sha256:2"], []), True),  # of two registries
        (([], ["l", "m"]), (["x@sha256:2"], ["l", "m"]), True),  # loaded from a file
        (([], ["l"]), ([], ["l", "m"]), False),
        (([], []), ([], []), False),
    ],
)
def test_same_image(one: Any, other: Any, same: bool) -> None:
    images = [
        Image("x", "amd64", tuple(digests), tuple(layers)) for digests, layers in (one, other)
    ]
    assert is_same(*images) is same
