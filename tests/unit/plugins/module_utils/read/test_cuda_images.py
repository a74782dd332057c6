# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.cluster import smoke_output
from ansible_collections.metal.gpu.plugins.module_utils.read import cuda_images
from ansible_collections.metal.gpu.plugins.module_utils.read.cuda_images import IMAGES, choose

RECORDED = Path(__file__).parents[4] / "recorded"
FACTS = yaml.safe_load((RECORDED / "cuda_images.yml").read_text())
PROGRAMS = {
    row["name"]: row
    for row in yaml.safe_load((RECORDED / "cuda_programs.yml").read_text())["images"]
}
KEPLER, MAXWELL, P100, V100, T4, A100 = "102d", "17fd", "15f8", "1db6", "1eb8", "20b0"
L40S, H100, B200, B300, UNKNOWN = "26b9", "2330", "2901", "3182", "f000"
NEW, OLD = (image.name for image in IMAGES)


@pytest.mark.parametrize(
    ("driver", "devices", "image"),
    [
        ("580.178.04", [P100], NEW),
        ("580.178.04", [MAXWELL], NEW),
        ("580.178.04", [V100, V100], NEW),
        ("595.45.04", [T4, A100, L40S, H100], NEW),
        ("525.60.13", [A100], NEW),
        ("525.60.11", [A100], OLD),
        ("470.256.02", [KEPLER], OLD),
        ("470.256.02", [A100, KEPLER], OLD),
        ("450.80.02", [V100], OLD),
        ("450.66", [V100], ""),
        ("390.157", [KEPLER], ""),
        ("470.256.02", ["1040"], ""),  # Fermi
        ("520.61.05", [H100], ""),
        ("580.178.04", [B200], NEW),
        ("580.178.04", [B300], NEW),
        ("580.178.04", [UNKNOWN], NEW),
        ("580.178.04", [], NEW),
        (None, [A100], ""),
    ],
)
def test_the_image_fits_driver_and_gpus(driver: str | None, devices: list[str], image: str) -> None:
    assert choose(driver, devices) == image


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_images_are_as_recorded(image: cuda_images.Image) -> None:
    row = PROGRAMS[image.name]
    (first,) = (one["first"] for one in FACTS["drivers"] if one["cuda"] == row["toolkit"] // 1000)
    assert image.first_driver == first
    assert row["path"] in smoke_output.PROGRAMS
    for generation, architectures in FACTS["generations"].items():
        # Code of an architecture runs on later ones of the same major number.
        has_code = any(
            code // 10 == one // 10 and code <= one
            for one in architectures
            for code in row["architectures"]
        )
        assert has_code is (generation in image.generations), generation
        if generation in image.compiled:
            assert row["ptx"] <= min(architectures)


@pytest.mark.parametrize(
    ("name", "driver", "expected"),
    [
        (NEW, "525.60.13", True),
        (NEW, "525.60.11", False),
        (NEW, None, False),
        (OLD, "450.80.02", True),
        (f"mirror.example:5000/nvidia/{NEW.rpartition('/')[2]}@sha256:0000", "580.178.04", True),
        ("example/cuda13", "580.178.04", False),
        (f"{NEW}-ubi8", "580.178.04", False),
        ("", "580.178.04", False),
    ],
)
def test_which_images_are_known_to_run(name: str, driver: str | None, expected: bool) -> None:
    assert cuda_images.runs_with(name, driver) is expected


def test_documented_drivers_of_a_node_without_an_image() -> None:
    text = (
        (RECORDED.parents[1] / "docs/troubleshooting.md")
        .read_text()
        .partition("### COMPUTE_IMAGE_UNKNOWN")[2]
    )
    first = IMAGES[0].first_driver
    assert f"Hopper and newer GPUs need driver {first}" in " ".join(text.split())
    assert [choose(first, [one]) for one in (H100, B200)] == [NEW, NEW]
    assert [choose("525.60.11", [one]) for one in (H100, B200)] == ["", ""]


def test_programs_are_where_they_are_recorded() -> None:
    assert [row["path"] for row in FACTS["programs"]] == [*smoke_output.PROGRAMS]


def test_what_is_unproven_is_in_the_documents() -> None:
    root = RECORDED.parents[1]
    for name in ("docs/troubleshooting.md", "roles/verify/README.md"):
        text = (root / name).read_text()
        assert "Blackwell" in text
        assert "unproven" in text
    for image in IMAGES:
        assert f"| `{image.name}` | {image.first_driver} or newer |" in text
