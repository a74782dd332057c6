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
    limits,
    meets,
    misfits,
    supports,
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


CDI = NEW._replace(compares=False)  # a driver for CUDA 13.0
BLACKWELL = Gpu("B200", "Blackwell", "10.0")
CUDA_13_1 = {"NVIDIA_REQUIRE_CUDA": "cuda>=13.1", "CUDA_VERSION": "13.1.0"}
OF_TESLAS = "cuda>=13.1 brand=tesla,driver>=580,driver<581"


@pytest.mark.parametrize(
    ("environment", "machine", "capabilities", "code", "words"),
    [
        pytest.param(
            CUDA_13_1, NEW, (), "IMAGE_NEEDS_DRIVER",
            "`cuda>=13.1`, which NVIDIA's runtime compares",
            id="the hook compares, and would not start it",
        ),
        pytest.param(CUDA_13_1, CDI, (), "IMAGE_CUDA_NEWER", "13.1", id="CDI compares nothing"),
        pytest.param(
            {"CUDA_VERSION": "13.1.0"}, CDI, (), "IMAGE_CUDA_NEWER", "13.1", id="no variable"
        ),
        pytest.param(
            {"NVIDIA_REQUIRE_CUDA": OF_TESLAS}, CDI._replace(brand="Tesla"), (), "", "",
            id="the image names this driver",
        ),
        *(
            pytest.param(
                {"NVIDIA_REQUIRE_CUDA": text}, CDI, (), "IMAGE_CUDA_NEWER", text[-4:], id=text
            )
            for text in ("cuda>13.0", "cuda=13.1", "driver>=590,cuda>=13.1")
        ),
        pytest.param(
            {"NVIDIA_REQUIRE_CUDA": OF_TESLAS}, CDI._replace(brand="GeForce"), (),
            "IMAGE_CUDA_NEWER", "13.1", id="the image names this driver for other GPUs",
        ),
        pytest.param(
            {**CUDA_13_1, "NVIDIA_REQUIRE_CUDA": "cuda>=9.0"}, CDI, (), "", "",
            id="it brings cuda-compat",
        ),
        pytest.param(
            {**CUDA_13_1, "NVIDIA_DISABLE_REQUIRE": "1"}, CDI, (), "", "",
            id="somebody knows better",
        ),
        pytest.param(CUDA_13_1, CDI._replace(cuda="13.1"), (), "", "", id="the same version"),
        pytest.param(CUDA_13_1, CDI._replace(cuda="13.2"), (), "", "", id="a newer driver"),
        pytest.param(CUDA_13_1, CDI._replace(cuda="14.0"), (), "", "", id="a newer major version"),
        pytest.param(CUDA_13_1, CDI._replace(cuda=None), (), "", "", id="nobody knows it"),
        pytest.param(
            CUDA_13_1, CDI._replace(cuda="12.9"), (),
            "IMAGE_NEEDS_DRIVER", "a driver for CUDA 13.1", id="an older major version",
        ),
        *(
            pytest.param(
                {"NVIDIA_REQUIRE_CUDA": text, "CUDA_VERSION": "13.0.2"},
                CDI._replace(cuda="12.2", driver="535.1", brand=brand), (), code, "CUDA 13.0",
                id=f"older drivers of a brand, on {brand or 'an unknown one'}",
            )
            for text in ("cuda>=13.0 brand=nvidia,driver>=535,driver<536",)
            for brand, code in {
                "": "", "NVIDIA": "", "GeForce": "IMAGE_NEEDS_DRIVER"
            }.items()
        ),
        pytest.param(
            {"NVIDIA_REQUIRE_CUDA": OF_TESLAS}, CDI, (), "IMAGE_CUDA_NEWER", "13.1",
            id="the image names this driver for a brand, and nobody knows it",
        ),
        pytest.param(
            {"CUDA_VERSION": "11.8.0"}, CDI._replace(cuda="11.0", driver="450.51.06"), (),
            "IMAGE_NEEDS_DRIVER", "driver 450.80.02 or newer", id="the first driver of CUDA 11.0",
        ),
        pytest.param(
            {"CUDA_VERSION": "11.8.0"}, CDI._replace(cuda="11.0", driver="450.80.02"), (),
            "IMAGE_CUDA_NEWER", "11.8", id="the first driver for all of CUDA 11",
        ),
        pytest.param(
            {"CUDA_VERSION": "10.2.89"}, CDI._replace(cuda="10.1", driver="418.226.00"), (),
            "IMAGE_NEEDS_DRIVER", "a driver for CUDA 10.2", id="before CUDA 11",
        ),
        pytest.param(
            CUDA_13_1, CDI._replace(gpus=(A100, BLACKWELL)), ("8.0", "9.0+PTX"),
            "IMAGE_CUDA_NEWER", "nothing else for B200)", id="a GPU that needs PTX",
        ),
        pytest.param(
            CUDA_13_1, CDI._replace(gpus=(P100,)), ("7.0",), "IMAGE_NEEDS_GPU", "P100",
            id="what cannot run has no limits",
        ),
    ],
)  # fmt: skip
def test_newer_minor_version_of_cuda(
    environment: dict[str, str],
    machine: Machine,
    capabilities: tuple[str, ...],
    code: str,
    words: str,
) -> None:
    named = [*misfits(image(**environment), machine, capabilities)]
    named += limits(image(**environment), machine, capabilities)
    assert [one.code for one in named] == ([code] if code else [])
    assert all(words in " ".join(one.evidence.values()) for one in named)


@pytest.mark.parametrize(
    ("environment", "machine", "expected"),
    [
        (CUDA_12_8, NEW, True),
        (CUDA_13_1, NEW, False),
        ({"CUDA_VERSION": "13.1.0", "NVIDIA_REQUIRE_CUDA": "cuda>=9.0"}, NEW, False),
        ({}, NEW, None),
        (CUDA_12_8, NEW._replace(cuda=None), None),
    ],
)
def test_driver_that_supports_the_version_of_an_image(environment, machine, expected) -> None:
    assert supports(image(**environment), machine) is expected


def test_first_drivers_are_those_of_the_records() -> None:
    first = FACTS["drivers"]["minor_versions"]["value"][11]
    for driver, codes in ((first, []), ("450.80.01", ["IMAGE_NEEDS_DRIVER"])):
        machine = CDI._replace(cuda="11.0", driver=driver)
        assert [one.code for one in misfits(image(CUDA_VERSION="11.8.0"), machine)] == codes


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
