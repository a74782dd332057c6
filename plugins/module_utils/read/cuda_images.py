# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Choose the image whose CUDA program fits the driver and the GPUs of a node.

An image is for the driver of its version of CUDA, and for newer ones. CUDA programs themselves also
run with older drivers of the same major version, but these images do not: they demand their version
of CUDA from the container runtime, and bring a `cuda-compat` that takes the place of an older
driver's libcuda and refuses GPUs such as GeForce. A program contains machine code for some
architectures, and an intermediate code (PTX) of the newest of them, which the driver compiles for
newer GPUs. The facts are in tests/recorded/cuda_images.yml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.read import gpu_models
from ansible_collections.metal.gpu.plugins.module_utils.read.version import release

if TYPE_CHECKING:
    from collections.abc import Iterable


class Image(NamedTuple):
    """An image of NVIDIA's with vectorAdd."""

    name: str
    first_driver: str
    generations: tuple[str, ...]  # with machine code in the image
    compiled: tuple[str, ...]  # whose code the driver compiles from the PTX in the image


_SAMPLES = "nvcr.io/nvidia/k8s/cuda-sample"
# The first that fits is taken.
IMAGES = (
    Image(
        f"{_SAMPLES}:vectoradd-cuda12.5.0",
        "555.42.02",
        ("Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Grace Hopper"),
        ("Blackwell", "Blackwell Ultra", "newer"),
    ),
    Image(
        f"{_SAMPLES}:vectoradd-cuda11.7.1",
        "515.43.04",
        ("Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada"),
        ("Hopper", "Grace Hopper"),
    ),
    Image(
        f"{_SAMPLES}:vectoradd-cuda10.2",
        "440.33.01",
        ("Kepler", "Maxwell", "Pascal", "Volta", "Turing"),
        ("Ampere", "Ada"),
    ),
)
# These have no machine code in any recorded image, and nobody has reported a run on them.
UNPROVEN = IMAGES[0].compiled


def runs_with(name: str, driver_version: str | None) -> bool:
    """Tell whether this is a known image, and the driver is new enough for its program."""
    image = find(name)
    if image is None or driver_version is None:
        return False
    return release(driver_version) >= release(image.first_driver)


def find(name: str) -> Image | None:
    """Return a known image by its name; a mirror has its last part."""
    tail = _tail(name.partition("@")[0])
    return next((image for image in IMAGES if _tail(image.name) == tail), None)


def _tail(name: str) -> str:
    return name.rpartition("/")[2]


def choose(driver_version: str | None, devices: Iterable[str]) -> str:
    """Return the image for a driver, and for GPUs with these PCI device ids; empty if none fits."""
    if driver_version is None:
        return ""
    names = {gpu_models.generation(device).name for device in devices}
    for image in IMAGES:
        is_new_enough = release(driver_version) >= release(image.first_driver)
        if is_new_enough and names <= {*image.generations, *image.compiled}:
            return image.name
    return ""
