# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""For which version of CUDA an image is."""

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.image_cuda import of_image

OF_BRANDS = "brand=tesla,cuda>=12.0 cuda>=13.1"


@pytest.mark.parametrize(
    ("environment", "brand", "expected", "newer_than"),
    [
        pytest.param({}, "", None, [], id="nothing"),
        pytest.param({"CUDA_VERSION": "13.1.0"}, "", "13.1", ["13.0", "12.9"], id="its version"),
        pytest.param(
            {"CUDA_VERSION": "13.1.0", "NVIDIA_REQUIRE_CUDA": "cuda>=9.0"}, "", "13.1", ["13.0"],
            id="its version, of a framework",
        ),
        *(
            pytest.param({"NVIDIA_REQUIRE_CUDA": text}, "", expected, ["13.0"], id=text)
            for text, expected in {
                "cuda>=13.1": "13.1",
                "cuda=13.1": "13.1",
                "cuda>13.0": "later than 13.0",
                "driver>=590,cuda>=13.1": "13.1",
                "cuda>=13.1,cuda<14": "13.1",
                "cuda>=13.2 cuda>=13.1": "13.1",
                "brand=tesla,driver>=580,driver<581 cuda>=13.1": "13.1",
            }.items()
        ),
        pytest.param({"NVIDIA_REQUIRE_CUDA": "cuda<13 driver>=590"}, "", None, [], id="no least"),
        pytest.param(
            {"NVIDIA_REQUIRE_CUDA": OF_BRANDS}, "GeForce RTX", "13.1", ["13.0"], id="another brand"
        ),
        pytest.param({"NVIDIA_REQUIRE_CUDA": OF_BRANDS}, "Tesla", "12.0", [], id="this brand"),
        pytest.param({"NVIDIA_REQUIRE_CUDA": OF_BRANDS}, "", "12.0", [], id="an unknown brand"),
    ],
)  # fmt: skip
def test_version_of_an_image(
    environment: dict[str, str], brand: str, expected: str | None, newer_than: list[str]
) -> None:
    found = of_image(environment, brand)
    assert (None if found is None else str(found)) == expected
    for supported in newer_than:
        assert found is not None
        assert found.is_newer(supported)
    assert found is None or not found.is_newer("13.1")
